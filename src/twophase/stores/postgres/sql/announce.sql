-- A node says where its consumers reach it. No row: the fence is down. $1 node, $2 fence, $3 the addresses.
-- Served by: the primary key of node.
update node set served_at = $3 where id = $1 and fence = $2
returning id
