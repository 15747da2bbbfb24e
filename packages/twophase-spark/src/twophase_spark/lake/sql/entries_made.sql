-- How many entries of queues were stored in a time, and when the first and the last one. ? from, ? before.
-- Served by: the whole table, on purpose.
select count(*), min(stored_ms), max(stored_ms), 0, 0 from queue_entry where stored_ms >= ? and stored_ms < ?
