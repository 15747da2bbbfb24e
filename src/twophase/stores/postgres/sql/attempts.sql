-- The newest attempts of a gid, newest first. $1 gid, $2 limit. There is no index by id alone: a plan made over few rows
-- would walk it through everybody's.
-- Served by: the primary key of attempt, backwards.
select gid, kind, branch_id, target, at_ms, status, latency_ms, result, error
from attempt where gid = $1
order by id desc
limit $2
