-- MySQL returns no rows from an update, so the caller verifies the row afterwards. Served by uniq_barrier.
update {table}
set reason = :op
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01' and token = :token
