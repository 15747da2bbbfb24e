-- Removes an attempt that the lake has, unless its message is live. ? id, gid, at_ms.
-- Served by: the primary keys of attempt and message.
delete from attempt
where id = ? and gid = ? and at_ms = ? and not exists (select 1 from message where message.gid = attempt.gid)
