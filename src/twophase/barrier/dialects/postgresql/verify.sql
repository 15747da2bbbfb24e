-- The row as this very transaction wrote it: its xmin is our transaction's id or, written inside a savepoint, a later
-- one. A row of a transaction that ended before has an older one. Served by uniq_barrier.
select 1
from {table}
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01' and token = :token and age(xmin) <= 0
