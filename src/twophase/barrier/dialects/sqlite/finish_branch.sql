-- Served by uniq_barrier; that the transaction is still the same one, the mark proves.
update {table}
set reason = :op
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01' and token = :token
returning 1
