-- Keys and times of some entries of a queue, from its old end. ?1 topic, ?2 queue, ?3 before number, ?4 limit.
-- Served by: the primary key of queue_entry.
select topic, queue, number, stored_ms from queue_entry
where topic = ?1 and queue = ?2 and number < ?3
order by number
limit ?4
