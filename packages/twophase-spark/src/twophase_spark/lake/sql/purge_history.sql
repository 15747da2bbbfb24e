-- Removes a row that the lake has: this very one, not another that has come to its number. ? seq, gid, finished_ms, node.
-- Served by: the primary key of history.
delete from history where seq = ? and gid = ? and finished_ms = ? and node = ?
