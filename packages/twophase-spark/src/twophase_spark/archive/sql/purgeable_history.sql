-- What a file of history still has in the store and is old enough. ? node, ? first and ? last seq, ? finished before.
-- Served by: the primary key of history.
select seq, gid, finished_ms from history
where node = ? and seq >= ? and seq <= ? and finished_ms < ? order by seq
