-- After a duplicate-key error: does a row of this very key stand, and whose? A locking read, because a snapshot of an
-- earlier statement may be older than the row; shared, as the failed insert has locked it already. Served by
-- uniq_barrier.
select gid, reason
from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01'
lock in share mode
