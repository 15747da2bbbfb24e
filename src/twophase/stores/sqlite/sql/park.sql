-- The mark that stops retries, if the row is still as the coordinator knows it.
-- ?1 node, ?2 epoch; a row: gid, version, parked, due, attempts, done; the last two null to leave them.
-- Served by: the primary key of message.
update message set
    node = ?1, epoch = ?2, version = message.version + 1,
    parked = item.column3, due_ms = item.column4,
    attempts = coalesce(item.column5, message.attempts), done = coalesce(item.column6, message.done)
from (values (?, ?, ?, ?, ?, ?)) as item
where message.gid = item.column1 and message.version = item.column2
