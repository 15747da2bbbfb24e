-- The sizes of the bodies that a page may look at, in its order. ?1 gid before which it begins, ?2 least gid, ?3 rows.
-- Served by: the primary key of message.
select length(body) from message where gid < ?1 and gid >= ?2 order by gid desc limit ?3
