-- A page of attempts from their old end, and whether each one stays: its message is live, and not more than $4 are newer.
-- $1 before, $2 and $3 at and id of the last one seen, $4 how many newer ones, $5 limit.
-- Served by: attempt_at, the primary keys of message and attempt.
select at_ms, id, coalesce(
    (
        select (
            select newer.id from attempt as newer
            where newer.gid = attempt.gid and newer.id > attempt.id
            order by newer.id
            offset $4 limit 1
        ) is null
        from message where message.gid = attempt.gid
    ),
    false
)
from attempt
where (at_ms, id) > ($2::bigint, $3::bigint) and at_ms < $1
order by at_ms, id
limit $5
