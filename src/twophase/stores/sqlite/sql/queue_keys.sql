-- Keys of some entries of a topic. ?1 topic, ?2 limit.
-- Served by: the primary key of queue_entry.
select topic, queue, number from queue_entry where topic = ?1 limit ?2
