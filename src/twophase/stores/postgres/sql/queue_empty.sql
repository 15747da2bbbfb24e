-- Removes some entries of a topic. $1 topic, $2 limit.
-- Served by: the primary key of queue_entry.
with gone as (select topic, queue, number from queue_entry where topic = $1 limit $2)
delete from queue_entry using gone
where queue_entry.topic = any (array[gone.topic]) and queue_entry.queue = gone.queue and queue_entry.number = gone.number
