-- Takes the consumers of a topic, see ../own.sql. $1 node, $2 fence, $3 the clock or null, $4 topic.
-- Served by: what the function names.
select twophase_own($1, $2, $3, $4)
