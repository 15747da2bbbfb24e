-- The next numbers of the queues of topics. $1 topics.
-- Served by: the primary key of queue_counter.
select topic, queue, next_number from queue_counter where topic = any ($1::text[])
