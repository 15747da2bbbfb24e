-- A page of a node's history from its old end; history ends in the order it was numbered. $1 node, $2 last seq seen,
-- $3 limit.
-- Served by: the primary key of history.
select seq, gid, finished_ms from history where node = $1 and seq > $2 order by seq limit $3
