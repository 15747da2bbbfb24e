-- The first entry of a queue from a number on. ?1 topic, ?2 queue, ?3 least number.
-- Served by: the primary key of queue_entry.
select number, stored_ms from queue_entry where topic = ?1 and queue = ?2 and number >= ?3 order by number limit 1
