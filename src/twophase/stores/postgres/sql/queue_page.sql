-- A page of a queue. $1 topic, $2 queue, $3 least number, $4 limit, $5 bytes: behind so many of bodies no row comes.
-- Served by: the primary keys of queue_entry and message, history_gid.
select number, gid, branch, stored_ms, body
from (
    select
        page.*, sum(octet_length(body)) over (
            order by number rows between unbounded preceding and 1 preceding
        ) as bytes_before
    from (
        select
            entry.number, entry.gid, entry.branch, entry.stored_ms,
            coalesce(
                (select message.body from message where message.gid = entry.gid),
                (select history.body from history where history.gid = entry.gid)
            ) as body
        from queue_entry as entry
        where entry.topic = $1 and entry.queue = $2 and entry.number >= $3
        order by entry.number
        limit $4
    ) as page
) as weighed
where bytes_before is null or bytes_before < $5::bigint
order by number
