-- The births of messages that this transaction has inserted, and that were begun at another coordinator.
-- A row: gid, created_ms.
-- Served by: the primary key of message.
update message set created_ms = item.column2
from (values (?, ?)) as item
where message.gid = item.column1 and message.version = 1
