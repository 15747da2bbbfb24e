-- Entries at the old end of a queue that no group needs, with their times. ?1 topic, ?2 queue, ?3 limit.
-- Served by: the primary keys of queue_entry and queue_progress.
select topic, queue, number, stored_ms
from queue_entry
where topic = ?1 and queue = ?2
    and number < coalesce(
        (select min(next_number) from queue_progress where topic = ?1 and queue = ?2), 9223372036854775807
    )
order by number
limit ?3
