-- The rows of gids. One statement over both tables, so that a message on its way into history is never missed. $1 gids.
-- Served by: the primary key of message, history_gid.
select
    false as final, gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done,
    body, owner, node, epoch, 0::bigint as seq, 0::bigint as finished_ms, '' as reason
from message where gid = any ($1::text[])
union all
select
    true, gid, state, 0, 0, created_ms, decided_ms, decided_by, attempts, false, done,
    body, owner, node, 0, seq, finished_ms, reason
from history where gid = any ($1::text[])
