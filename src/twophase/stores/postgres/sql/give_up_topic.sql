-- The owner of a topic gives it up, for the next one to take. Another term is not touched. $1 topic, $2 term.
-- Served by: the primary key of queue_owner.
update queue_owner set node = 0, epoch = 0 where topic = $1 and term = $2
