-- A page of a queue. ?1 topic, ?2 queue, ?3 least number, ?4 limit.
-- Served by: the primary keys of queue_entry and message, history_gid.
select entry.number, entry.gid, entry.branch, entry.stored_ms,
    coalesce(
        (select message.body from message where message.gid = entry.gid),
        (select history.body from history where history.gid = entry.gid)
    )
from queue_entry as entry
where entry.topic = ?1 and entry.queue = ?2 and entry.number >= ?3
order by entry.number
limit ?4
