-- Where a node stands. ?1 node.
-- Served by: the primary key of node.
select epoch, owner, seq, commit_count from node where id = ?1
