-- Live rows become history; the trigger of history takes them out of message.
-- ?1 node, ?2 last seq used, ?3 now; a row: place in this statement from 1, gid, version, state, reason,
-- decided by or '', attempts, done.
-- Served by: the primary key of message (read and delete).
insert into history
    (node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body,
    owner)
select
    ?1, ?2 + item.column1, message.gid, item.column4, message.created_ms,
    case item.column6 when '' then message.decided_ms else ?3 end, ?3,
    case item.column6 when '' then message.decided_by else item.column6 end,
    item.column5, item.column7, item.column8, message.body, message.owner
from (values (?, ?, ?, ?, ?, ?, ?, ?)) as item
cross join message
where message.gid = item.column2 and message.version = item.column3
