-- Gives back the sequence numbers of refused finishes, so that history has no gaps. ?1 node, ?2 last seq used.
-- Served by: the primary key of node.
update node set seq = ?2 where id = ?1
