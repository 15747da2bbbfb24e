-- A process that stops gives its place back: the next start takes it at once, with the rows. $1 node, $2 owner.
-- Served by: the primary key of node.
update node set owner = '', fence = fence + 1 where id = $1 and owner = $2
