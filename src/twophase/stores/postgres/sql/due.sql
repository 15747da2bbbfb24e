-- What is due of one tenure, a page at a time. $1 until, $2 and $3 due and gid of the last row seen, $4 limit, $5 node,
-- $6 epoch, $7 bytes: behind so many of bodies no row comes. Bodies that are left out are not read.
-- Served by: message_due, in its order.
select
    gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner, node, epoch
from (
    select
        gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner, node, epoch,
        sum(octet_length(body)) over (
            order by due_ms, gid rows between unbounded preceding and 1 preceding
        ) as bytes_before
    from message
    where node = $5 and epoch = $6 and not parked and (due_ms, gid) > ($2::bigint, $3::text) and due_ms <= $1
    order by due_ms, gid
    limit $4
) as page
where bytes_before is null or bytes_before < $7::bigint
order by due_ms, gid
