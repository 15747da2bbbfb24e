-- Wakes the nodes that serve the consumers of topics. A transaction of its own, behind the one that appended: a flush with a notice
-- would hold a lock of the whole server until its commit. $1 channel, $2 topics.
-- Served by: nothing; it reads no table.
select pg_notify($1, topic) from unnest($2::text[]) as topic
