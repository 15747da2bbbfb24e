-- The progress of groups, and the act behind it; no row where a topic has another term by now. $1 the clock or null, $2 node,
-- $3 to $8 the columns of progress, $9 to $16 the columns of acts, see ../audit.sql.
-- Served by: the primary keys of queue_owner and queue_progress.
with held as (
    select queue_owner.topic, queue_owner.term from queue_owner where queue_owner.topic = any ($4::text[]) for share
), item as (
    select item.*, coalesce((select held.term from held where held.topic = item.topic), 0) = item.term as holds
    from unnest($3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bytea[], $8::bigint[])
        as item (consumers, topic, queue, next_number, unfinished, term)
), now as (
    select coalesce($1::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as ms
    where not exists (select from item where not item.holds)
), put as (
    insert into queue_progress (consumers, topic, queue, next_number, unfinished, changed_ms)
    select item.consumers, item.topic, item.queue, item.next_number, item.unfinished, now.ms from now, item
    on conflict (topic, queue, consumers) do update set
        next_number = excluded.next_number, unfinished = excluded.unfinished, changed_ms = excluded.changed_ms
)
select twophase_audit(array[now.ms, 0], $2, $9, $10, $11, $12, $13, $14, $15, $16) from now
