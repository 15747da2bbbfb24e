-- Removes the progress of a group, or of all groups in a topic. ?1 kind, ?2 name.
-- Served by: the whole table, on purpose: it has a row for each group and queue.
delete from queue_progress where (?1 = 'group' and consumers = ?2) or (?1 = 'topic' and topic = ?2)
