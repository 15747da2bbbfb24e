-- Served by uniq_barrier; that the transaction is still the one that decided, the mark proves.
select cast(reason as text)
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01'
