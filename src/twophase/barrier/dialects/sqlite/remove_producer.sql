-- In the transaction that wrote the row. Served by uniq_barrier.
delete from {table}
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01' and token = :token
