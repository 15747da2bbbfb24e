-- The places there ever were, with their holders' last sign of life. $1 limit.
-- Served by: the primary key of node.
select id, epoch, owner <> '' as held, seen_ms, served_at from node order by id limit $1
