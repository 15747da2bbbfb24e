-- A group's progress in the queues of a topic. $1 group, $2 topic.
-- Served by: the primary key of queue_progress, over the groups of one topic.
select consumers, topic, queue, next_number, unfinished from queue_progress where topic = $2 and consumers = $1
