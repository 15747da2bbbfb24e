-- How many attempts were made in a time, and when the first and the last one. ? from, ? before.
-- Served by: attempt_at on PostgreSQL; SQLite reads the table.
select count(*), min(at_ms), max(at_ms) from attempt where at_ms >= ? and at_ms < ?
