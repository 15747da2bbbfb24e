-- All queues: there are few.
-- Served by: the whole table, on purpose.
select topic, queue from queue_counter
