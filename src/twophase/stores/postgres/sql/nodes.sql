-- Every place there ever was.
-- Served by: the primary key of node.
select id from node order by id
