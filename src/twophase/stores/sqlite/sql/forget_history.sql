-- Removes history rows by key. ?1 node; a row: seq.
-- Served by: the primary key of history.
delete from history where node = ?1 and seq in (values (?))
