-- After an insert that gave no row back: does a row of this very key stand, and whose? Served by uniq_barrier.
select cast(gid as text), cast(reason as text)
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01'
