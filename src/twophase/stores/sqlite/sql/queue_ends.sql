-- The next numbers of a topic's queues. ?1 topic.
-- Served by: the primary key of queue_counter.
select queue, next_number from queue_counter where topic = ?1
