-- The last final message that a page may look at. ?1 node, ?2 number before which it begins, ?3 rows before it.
-- Served by: the primary key of history.
select seq, finished_ms from history where node = ?1 and seq < ?2 order by seq desc limit 1 offset ?3
