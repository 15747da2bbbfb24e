-- One topic as it is to be, if the topics still stand at the revision that is known; no row when they do not. Whoever
-- comes second waits for the first at the revision's row, and then finds another one.
-- $1 the revision that is known, $2 name, $3 subscribers, null: remove it, $4 the clock or null, $5 node,
-- $6 to $13 the columns of acts, null without, see ../audit.sql.
-- Served by: the primary keys of store_meta and topic.
with bumped as (
    update store_meta set value = value + 1 where name = 'topics_revision' and value = $1
    returning value, coalesce($4::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as now_ms
), put as (
    insert into topic (name, id, version, created_ms, changed_ms, subscribers)
    select $2, bumped.value, 1, bumped.now_ms, bumped.now_ms, $3 from bumped where $3::text is not null
    on conflict (name) do update set
        version = topic.version + 1, changed_ms = excluded.changed_ms, subscribers = excluded.subscribers
), removed as (
    delete from topic using bumped where topic.name = any (array[$2]) and $3::text is null
)
select value, twophase_audit(array[now_ms, 0], $5, $6, $7, $8, $9, $10, $11, $12, $13) from bumped
