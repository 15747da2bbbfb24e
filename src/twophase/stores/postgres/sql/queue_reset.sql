-- The progress of groups, and the act behind it. $1 the clock or null, $2 node, $3 to $7 the columns of progress,
-- $8 to $15 the columns of acts, see ../audit.sql.
-- Served by: the primary key of queue_progress.
with now as (
    select coalesce($1::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as ms
), put as (
    insert into queue_progress (consumers, topic, queue, next_number, unfinished, changed_ms)
    select item.*, now.ms
    from now, unnest($3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bytea[]) as item
    on conflict (topic, queue, consumers) do update set
        next_number = excluded.next_number, unfinished = excluded.unfinished, changed_ms = excluded.changed_ms
)
select twophase_audit(array[now.ms, 0], $2, $8, $9, $10, $11, $12, $13, $14, $15) from now
