-- Raises the horizon, which never falls, and removes rows by key, in one commit: whoever no longer sees a history row
-- sees the horizon that stands for it. No plain joins, see flush.sql. $1 horizon (0: no history goes), $2 nodes and
-- $3 seqs of history, $4 times and $5 ids of attempts.
-- Served by: the primary keys of store_meta and history, attempt_at.
with raised as (
    update store_meta set value = greatest(value, $1) where name = 'history_horizon_ms' returning value
), old_history as (
    delete from history using unnest($2::integer[], $3::bigint[]) as item (node, seq)
    where history.node = any (array[item.node]) and history.seq = any (array[item.seq])
), old_attempts as (
    delete from attempt using unnest($4::bigint[], $5::bigint[]) as item (at_ms, id)
    where attempt.at_ms = any (array[item.at_ms]) and attempt.id = any (array[item.id])
)
select value from raised
