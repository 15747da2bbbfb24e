-- The topics of the process that had a node's slot before are free: the next one may be of a slot that does not ask for them, and then
-- nobody would give them up. A statement behind the one that took the slot, which waits for a call of that process: so this sees the topic
-- that it took with that. $1 node, $2 epoch.
-- Served by: nothing; a start walks the table, which has one row per topic with consumers.
update queue_owner set node = 0, epoch = 0 where node = $1 and epoch = $2
