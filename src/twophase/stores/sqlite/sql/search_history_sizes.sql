-- The sizes of the bodies that a page may look at, in its order. ?1 node, ?2 number before which it begins, ?3 rows.
-- Served by: the primary key of history.
select length(body) from history where node = ?1 and seq < ?2 order by seq desc limit ?3
