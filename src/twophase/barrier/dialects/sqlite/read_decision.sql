-- Read in the transaction that decided: what the application runs at COMMIT may have ended it. Served by uniq_barrier.
select reason
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01'
