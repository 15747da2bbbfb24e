-- New entries of queues. ?1 now; a row: topic, queue, number, gid, branch.
-- Served by: nothing to look up.
insert into queue_entry (topic, queue, number, gid, branch, stored_ms)
select item.column1, item.column2, item.column3, item.column4, item.column5, ?1
from (values (?, ?, ?, ?, ?)) as item
where item.column1 is not null
