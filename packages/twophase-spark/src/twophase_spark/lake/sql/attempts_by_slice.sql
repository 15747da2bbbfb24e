-- How many attempts were made in each slice of a time, as far as there were any, and between which ids. ? the slices'
-- width, ? from, ? before.
-- Served by: attempt_at on PostgreSQL; SQLite reads the table.
select at_ms / ?, count(*), min(id), max(id) from attempt where at_ms >= ? and at_ms < ? group by 1 order by 1
