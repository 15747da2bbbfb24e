-- Times and bytes of entries, whose bodies are not read for it. $1 topic, $2 queues, $3 numbers.
-- Served by: the primary keys of queue_entry and message, history_gid.
select
    entry.queue, entry.number, entry.stored_ms,
    coalesce(
        (select octet_length(message.body) from message where message.gid = entry.gid),
        (select octet_length(history.body) from history where history.gid = entry.gid),
        0
    )
from unnest($2::integer[], $3::bigint[]) as place (queue, number)
cross join lateral (
    select queue, number, stored_ms, gid from queue_entry
    where topic = $1 and queue = place.queue and number = place.number
    limit 1
) as entry
