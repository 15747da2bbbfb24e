-- The row as this very transaction wrote it: its xmin is the transaction's id or, written inside a savepoint, a later
-- one. A row of a transaction that ended before has an older one. The setting is repeated because the block may have
-- changed it. Served by uniq_barrier.
select set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end,
                  true)
from {table}
where gid = :gid and branch_id = :branch_id and op = :op and barrier_id = '01' and token = :token and age(xmin) <= 0
