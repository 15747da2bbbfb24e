-- Another address for some calls, or for the check-back, if the row is still as the coordinator knows it.
-- ?1 node, ?2 epoch; a row: gid, version, due, done, body.
-- Served by: the primary key of message.
update message set
    node = ?1, epoch = ?2, version = message.version + 1,
    due_ms = item.column3, attempts = 0, done = item.column4, body = item.column5
from (values (?, ?, ?, ?, ?)) as item
where message.gid = item.column1 and message.version = item.column2
