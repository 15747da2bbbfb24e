-- The places there ever were. ?1 limit.
-- Served by: the primary key of node.
select id, epoch, owner <> '', seen_ms from node where id > 0 order by id limit ?1
