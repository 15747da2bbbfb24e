-- Keys and times of some entries of a topic. ?1 topic, ?2 limit.
-- Served by: the primary key of queue_entry.
select topic, queue, number, stored_ms from queue_entry where topic = ?1 limit ?2
