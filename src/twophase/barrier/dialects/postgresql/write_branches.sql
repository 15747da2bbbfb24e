-- Served by uniq_barrier.
update {table}
set body = :body
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01' and token = :token
