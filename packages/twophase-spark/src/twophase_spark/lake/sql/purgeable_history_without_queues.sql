-- The same as purgeable_history, of a store that an older coordinator made. ? node, ? first and ? last seq, ? finished before.
-- Served by: the primary key of history.
select seq, gid, finished_ms from history
where node = ? and seq >= ? and seq <= ? and finished_ms < ? order by seq
