-- Served by uniq_barrier; this transaction's insert has locked the row.
select gid, reason, token, body
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01'
