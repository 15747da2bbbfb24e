-- The row of a gid. One statement over both tables, so that a message on its way into history is never missed.
-- ?1 gid.
-- Served by: the primary key of message, history_gid.
select 0 as final, gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner, ''
from message where gid = ?1
union all
select 1, gid, state, node, seq, created_ms, decided_ms, decided_by, attempts, finished_ms, done, body, owner, reason
from history where gid = ?1
