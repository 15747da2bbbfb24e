-- The newest attempts of a gid, newest first. $1 gid, $2 limit.
-- Served by: attempt_gid.
select gid, kind, branch_id, target, at_ms, status, latency_ms, result, error
from attempt where gid = $1
order by id desc
limit $2
