-- How many attempts were made in a time, when the first and the last one, and between which ids. ? from, ? before.
-- Served by: attempt_at on PostgreSQL; SQLite reads the table.
select count(*), min(at_ms), max(at_ms), min(id), max(id) from attempt where at_ms >= ? and at_ms < ?
