-- The next number of a queue. ?1 topic, ?2 queue.
-- Served by: the primary key of queue_counter.
select next_number from queue_counter where topic = ?1 and queue = ?2
