-- Whoever has taken a slot frees the topics that the process before served in it. It does not know of them, so it would give none up for the
-- node that is to serve it now. A statement behind the one that took the slot, which has waited for a last call of that process, so this
-- sees what that call took. $1 node, $2 epoch.
-- Served by: nothing. A start walks the table, which has one row per topic with consumers.
update queue_owner set node = 0, epoch = 0 where node = $1 and epoch = $2
