-- What is due of one tenure, a page at a time. $1 until, $2 and $3 due and gid of the last row seen, $4 limit, $5 node,
-- $6 epoch.
-- Served by: message_due, in its order.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, node, epoch
from message
where node = $5 and epoch = $6 and not parked and (due_ms, gid) > ($2::bigint, $3::text) and due_ms <= $1
order by due_ms, gid
limit $4
