-- A page of a node's history from its old end; history ends in the order it was numbered. $1 node, $2 last seq seen,
-- $3 limit.
-- The last column: whether an entry of a queue needs its body.
-- Served by: the primary key of history, queue_entry_gid.
select seq, gid, finished_ms, (select true from queue_entry where queue_entry.gid = history.gid limit 1) from history where node = $1 and seq > $2 order by seq limit $3
