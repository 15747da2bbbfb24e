-- Served by uniq_barrier; the row is locked by our update.
select gid, branch_id, reason
from {table}
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01'
