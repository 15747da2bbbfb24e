-- The newest attempts of a gid, newest first. $1 gid, $2 limit.
-- Served by: attempt_gid, backwards. Written as a range, because with `gid = $1` its order is left to `id` alone, and a
-- plan made over few rows walks the primary key through everybody's.
select gid, kind, branch_id, target, at_ms, status, latency_ms, result, error
from attempt where gid >= $1 and gid <= $1
order by gid desc, id desc
limit $2
