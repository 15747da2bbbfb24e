-- The next final messages of each node that a person looks for, the newest first; bounded from below, see
-- search_history_floor. The beginning of the gid is compared by a function, as a range would invite another index.
-- $1 nodes, $2 numbers before which they begin, $3 least numbers, $4 states, $5 beginning of the gid, $6 and $7 created
-- from and before, $8 part of the body, $9 limit of each node, $10 owner or null.
-- Served by: the primary key of history, backwards.
select one.*
from unnest($1::integer[], $2::bigint[], $3::bigint[]) as part (of_node, below, least)
cross join lateral (
    select gid, state, node, seq, created_ms, decided_ms, decided_by, attempts, finished_ms, done, body,
        owner, reason
    from history
    where node = part.of_node and seq < part.below and seq >= part.least and state = any ($4::smallint[])
        and starts_with(gid, $5) and created_ms >= $6 and created_ms < $7
        and (length($8::bytea) = 0 or position($8::bytea in body) > 0)
        and ($10::text is null or owner = $10)
    order by seq desc
    limit $9
) as one
