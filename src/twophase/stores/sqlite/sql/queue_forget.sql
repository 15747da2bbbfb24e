-- Removes an entry by key. ?1 topic, ?2 queue, ?3 number.
-- Served by: the primary key of queue_entry.
delete from queue_entry where topic = ?1 and queue = ?2 and number = ?3
