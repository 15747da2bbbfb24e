-- Only where this very transaction wrote the row: one that it rewrote would look like its own to `verify`, which then
-- could not see that the row is another transaction's, committed before. Served by uniq_barrier.
update {table}
set body = :body
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01' and token = :token and age(xmin) <= 0
