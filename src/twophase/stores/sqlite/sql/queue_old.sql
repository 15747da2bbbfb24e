-- Entries at the old end of a queue that no group needs, with their times. ?1 topic, ?2 queue, ?3 limit.
-- A group that reads the topic, and has done nothing of this queue, needs all of it.
-- Served by: the primary keys of queue_entry and queue_progress.
select topic, queue, number, stored_ms
from queue_entry
where topic = ?1 and queue = ?2
    and number < coalesce(
        (
            select min(coalesce(
                (
                    select own.next_number from queue_progress as own
                    where own.topic = ?1 and own.queue = ?2 and own.consumers = reader.consumers
                ),
                0
            ))
            from queue_progress as reader where reader.topic = ?1
        ),
        9223372036854775807
    )
order by number
limit ?3
