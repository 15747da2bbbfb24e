-- Removes some entries of a queue, from its old end; in the same commit it raises the time before which entries may be gone.
-- $1 topic, $2 queue, $3 before number, $4 limit.
-- Served by: the primary keys of queue_entry and store_meta.
with gone as (
    select topic, queue, number, stored_ms from queue_entry
    where topic = $1 and queue = $2 and number < $3
    order by number
    limit $4
), raised as (
    insert into store_meta (name, value)
    select 'queue_horizon_ms', max(stored_ms) + 1 from gone having count(*) > 0
    on conflict (name) do update set value = greatest(store_meta.value, excluded.value)
)
delete from queue_entry using gone
where queue_entry.topic = any (array[gone.topic]) and queue_entry.queue = gone.queue and queue_entry.number = gone.number
