-- How many entries were stored in each slice of a time, as far as there were any. ? the slices' width, ? from, ? before.
-- Served by: the whole table, on purpose.
select stored_ms / ?, count(*), 0, 0 from queue_entry where stored_ms >= ? and stored_ms < ? group by 1 order by 1
