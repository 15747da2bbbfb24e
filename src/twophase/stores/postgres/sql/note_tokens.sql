-- The tokens as they are, if they still stand at the revision that is known; no row when they do not.
-- $1 the revision that is known, $2 names that go, $3 names and $4 descriptions that came or changed, $5 the clock or null,
-- $6 node, $7 to $14 the columns of acts, see ../audit.sql.
-- Served by: the primary keys of store_meta and token_seen.
with bumped as (
    update store_meta set value = value + 1 where name = 'tokens_revision' and value = $1
    returning value, coalesce($5::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as now_ms
), gone as (
    delete from token_seen using bumped where token_seen.name = any ($2::text[])
), put as (
    insert into token_seen (name, description)
    select item.name, item.description from bumped, unnest($3::text[], $4::text[]) as item (name, description)
    on conflict (name) do update set description = excluded.description
)
select value, twophase_audit(array[now_ms, 0], $6, $7, $8, $9, $10, $11, $12, $13, $14) from bumped
