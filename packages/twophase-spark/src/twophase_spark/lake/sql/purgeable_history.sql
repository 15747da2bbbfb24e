-- What a file of history still has in the store, old enough and needed by no entry of a queue. ? node, ? first and ? last
-- seq, ? finished before.
-- Served by: the primary key of history, queue_entry_gid.
select seq, gid, finished_ms from history
where node = ? and seq >= ? and seq <= ? and finished_ms < ?
    and not exists (select 1 from queue_entry where queue_entry.gid = history.gid)
order by seq
