-- What is due later than some time, of every tenure a page. The tenures that have rows are found by skipping from one
-- to the next. $1 and $2 due and gid of the last row seen, $3 limit of each.
-- Served by: message_due, in its order.
with recursive tenure as (
    (
        select node, epoch from message
        where not parked and (node, epoch) > (-1, -1)
        order by node, epoch limit 1
    )
    union all
    select next.node, next.epoch
    from tenure cross join lateral (
        select message.node, message.epoch from message
        where not message.parked and (message.node, message.epoch) > (tenure.node, tenure.epoch)
        order by message.node, message.epoch limit 1
    ) as next
)
select one.*
from tenure cross join lateral (
    select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner, node, epoch
    from message
    where message.node = tenure.node and message.epoch = tenure.epoch and not parked
        and (due_ms, gid) > ($1::bigint, $2::text)
    order by due_ms, gid
    limit $3
) as one
