-- Where groups stand: there are few. ?1 topic, ?2 group, each empty for all.
-- Served by: the whole table, on purpose.
select consumers, topic, queue, next_number, changed_ms
from queue_progress
where ?1 in ('', topic) and ?2 in ('', consumers)
order by consumers, topic, queue
