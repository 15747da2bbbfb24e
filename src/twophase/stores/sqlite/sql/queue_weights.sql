-- Times and bytes of entries. ?1 topic, ?2 (queue, number) of each as JSON. The length of a body is in its row's head.
-- Served by: the primary keys of queue_entry and message, history_gid.
select entry.queue, entry.number, entry.stored_ms,
    coalesce(
        (select length(message.body) from message where message.gid = entry.gid),
        (select length(history.body) from history where history.gid = entry.gid),
        0
    )
from json_each(?2) as place
cross join queue_entry as entry
where entry.topic = ?1
    and entry.queue = json_extract(place.value, '$[0]')
    and entry.number = json_extract(place.value, '$[1]')
