-- A page of attempts from its old end, and whether each one's message is live. ?1 last id seen, ?2 limit.
-- Served by: the primary keys of attempt and message.
select id, at_ms, exists (select 1 from message where message.gid = attempt.gid)
from attempt where id > ?1 order by id limit ?2
