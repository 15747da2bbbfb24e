-- The extent of each queue of a topic, or of all. $1 topic, empty for all.
-- Served by: queue_counter whole (a row a queue), the primary key of queue_entry.
select counter.topic, counter.queue, coalesce(entry.number, counter.next_number), counter.next_number, entry.stored_ms
from queue_counter as counter
left join lateral (
    select number, stored_ms from queue_entry
    where topic = counter.topic and queue = counter.queue
    order by number
    limit 1
) as entry on true
where $1 in ('', counter.topic)
order by counter.topic, counter.queue
