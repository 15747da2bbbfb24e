-- A page of attempts from their old end, and whether each one stays: its message is live, and it is among its newest.
-- $1 before, $2 and $3 at and id of the last one seen, $4 how many of a message are newer than its oldest that stays,
-- $5 limit. No condition on id where the newest are counted: a plan made over few rows would look for it in attempt_at.
-- Served by: attempt_at, the primary keys of message and attempt, the latter backwards.
select at_ms, id, coalesce(
    (
        select coalesce(
            attempt.id >= (
                select newest.id from attempt as newest where newest.gid = attempt.gid
                order by newest.id desc
                offset $4 limit 1
            ),
            true
        )
        from message where message.gid = attempt.gid
    ),
    false
)
from attempt
where (at_ms, id) > ($2::bigint, $3::bigint) and at_ms < $1
order by at_ms, id
limit $5
