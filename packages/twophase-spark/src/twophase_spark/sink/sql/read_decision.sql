-- 'msg', 'rollback', or no row while the batch is undecided. Served by uniq_barrier.
select reason from barrier where gid = :group_id and branch_id = '00' and op = 'msg' and barrier_id = '01'
