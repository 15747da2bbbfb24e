-- PREPARED becomes SUBMITTED after calls of its branches, if the row is still as the coordinator knows it.
-- ?1 node, ?2 epoch, ?3 now; a row: gid, version, due in ms, decided by, attempts, done.
-- Served by: the primary key of message.
update message set
    state = 3, node = ?1, epoch = ?2, version = message.version + 1,
    due_ms = ?3 + item.column3, decided_ms = ?3, decided_by = item.column4,
    attempts = item.column5, parked = 0, done = item.column6
from (values (?, ?, ?, ?, ?, ?)) as item
where message.gid = item.column1 and message.version = item.column2 and message.state = 2
