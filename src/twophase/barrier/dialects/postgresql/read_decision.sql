-- The row as the transaction that decided wrote it: its xmin is that transaction's id. What the application runs at
-- COMMIT may have ended that one. Served by uniq_barrier.
select reason
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01' and age(xmin) <= 0
