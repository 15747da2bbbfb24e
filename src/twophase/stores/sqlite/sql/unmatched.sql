-- Which changes do not meet the row they expect. A row: index in the batch, gid, version, state or 0 for any.
-- Served by: the primary key of message.
select item.column1
from (values (?, ?, ?, ?)) as item
where item.column1 is not null
    and not exists (
        select 1 from message
        where message.gid = item.column2 and message.version = item.column3
            and item.column4 in (0, message.state)
    )
