-- The first statement of every flush: no row means that another process has taken this node's place.
-- ?1 node, ?2 epoch, ?3 finishes in this flush, ?4 now.
-- Served by: the primary key of node.
update node set seq = seq + ?3, commit_count = commit_count + 1, seen_ms = ?4
where id = ?1 and epoch = ?2
