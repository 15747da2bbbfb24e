-- The next numbers of the queues of a topic, or of all: there are few. ?1 topic, empty for all.
-- Served by: the whole table, on purpose.
select topic, queue, next_number from queue_counter where ?1 in ('', topic) order by topic, queue
