-- Prepared rows of all nodes older than $1, a page at a time, parked or not. $2 and $3 created and gid of the last row
-- seen, $4 limit.
-- Served by: message_prepared, in its order.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner, node,
    epoch
from message
where state = 2 and (created_ms, gid) > ($2::bigint, $3::text) and created_ms < $1
order by created_ms, gid
limit $4
