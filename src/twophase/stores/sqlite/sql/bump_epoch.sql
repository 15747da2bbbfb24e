-- After a commit whose outcome is unknown: nothing of the old epoch can be written any more. ?1 node, ?2 owner.
-- Served by: the primary key of node.
update node set epoch = epoch + 1 where id = ?1 and owner = ?2
