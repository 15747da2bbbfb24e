-- The mark that stops retries, if the row is still as the coordinator knows it.
-- ?1 node, ?2 epoch; a row: gid, version, parked, due.
-- Served by: the primary key of message.
update message set
    node = ?1, epoch = ?2, version = message.version + 1,
    parked = item.column3, due_ms = item.column4
from (values (?, ?, ?, ?)) as item
where message.gid = item.column1 and message.version = item.column2
