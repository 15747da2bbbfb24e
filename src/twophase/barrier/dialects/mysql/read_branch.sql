-- Served by uniq_barrier; this transaction's update has locked the row.
select gid, branch_id, reason
from {table}
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01'
