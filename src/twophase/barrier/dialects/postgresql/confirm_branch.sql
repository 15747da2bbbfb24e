-- The update, though it changes nothing, writes the row: so our commit flushes the log behind the commit we read.
update {table}
set reason = reason
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01'
returning gid, branch_id, reason
