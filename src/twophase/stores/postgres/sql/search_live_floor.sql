-- The last live row that a page may look at. $1 gid before which it begins, $2 least gid, $3 rows before it.
-- Served by: the primary key of message.
select gid from message where gid < $1 and gid >= $2 order by gid desc limit 1 offset $3
