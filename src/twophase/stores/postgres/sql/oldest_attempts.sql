-- A page of attempts from their old end, and whether each one's message is live. $1 before, $2 and $3 at and id of the
-- last one seen, $4 limit.
-- Served by: attempt_at, the primary key of message.
select at_ms, id, coalesce((select true from message where message.gid = attempt.gid), false)
from attempt
where (at_ms, id) > ($2::bigint, $3::bigint) and at_ms < $1
order by at_ms, id
limit $4
