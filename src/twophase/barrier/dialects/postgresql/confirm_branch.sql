-- The update writes the row: so this commit flushes the log behind the commit it read. The time is always another,
-- because a trigger may suppress an update that changes nothing.
update {table}
set update_time = clock_timestamp()
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01'
returning gid, branch_id, reason
