-- Raises the horizon, which never falls, and removes rows by key, in one commit: whoever no longer sees a history row
-- sees the horizon that stands for it. $1 horizon, $2 nodes and $3 seqs of history, $4 ids of attempts.
-- Served by: the primary keys of store_meta, history, attempt and message.
with raised as (
    update store_meta set value = greatest(value, $1) where name = 'history_horizon_ms' returning value
), old_history as (
    delete from history using unnest($2::integer[], $3::bigint[]) as item (node, seq)
    where history.node = item.node and history.seq = item.seq
), old_attempts as (
    delete from attempt using unnest($4::bigint[]) as item (id)
    where attempt.id = item.id and not exists (select from message where message.gid = attempt.gid)
)
select value from raised
