-- Which new messages cannot be inserted. A row: index in the batch, gid.
-- Served by: the primary key of message, history_gid.
select item.column1
from (values (?, ?)) as item
where exists (select 1 from message where message.gid = item.column2)
    or exists (select 1 from history where history.gid = item.column2)
