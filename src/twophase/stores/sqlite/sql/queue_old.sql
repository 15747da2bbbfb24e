-- Entries at the old end of a queue that nothing needs. ?1 topic, ?2 queue, ?3 before, ?4 limit.
-- Served by: the primary keys of queue_entry and queue_progress.
select topic, queue, number
from (
    select topic, queue, number, stored_ms
    from queue_entry
    where topic = ?1 and queue = ?2
        and number < coalesce(
            (select min(next_number) from queue_progress where topic = ?1 and queue = ?2), 9223372036854775807
        )
    order by number
    limit ?4
)
where stored_ms < ?3
