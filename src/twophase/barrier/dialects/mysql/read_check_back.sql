-- Served by uniq_barrier; the row is locked by our insert.
select gid, reason, token, body
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01'
