-- The rows of gids. One statement over both tables, so that a message on its way into history is never missed. $1 gids.
-- Served by: the primary key of message, history_gid.
select
    false as final, message.gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done,
    body, node, epoch, 0::bigint as seq, 0::bigint as finished_ms, '' as reason
from unnest($1::text[]) as item (gid) join message on message.gid = item.gid
union all
select
    true, history.gid, state, 0, 0, created_ms, decided_ms, decided_by, attempts, false, done,
    body, node, 0, seq, finished_ms, reason
from unnest($1::text[]) as item (gid) join history on history.gid = item.gid
