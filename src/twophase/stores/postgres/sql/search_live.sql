-- A page of the live rows that a person looks for, the greatest gid first; bounded from below, see search_live_floor.
-- $1 gid before which it begins, $2 least gid, $3 states, $4 parked, $5 and $6 created from and before, $7 part of the
-- body, $8 limit, $9 owner or null.
-- Served by: the primary key of message.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner, node,
    epoch
from message
where gid < $1 and gid >= $2 and state = any ($3::smallint[]) and parked = any ($4::boolean[])
    and created_ms >= $5 and created_ms < $6 and (length($7::bytea) = 0 or position($7::bytea in body) > 0)
    and ($9::text is null or owner = $9)
order by gid desc
limit $8
