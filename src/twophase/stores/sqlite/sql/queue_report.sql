-- What groups have done. ?1 now; a row: group, topic, queue, next number, unfinished.
-- Served by: the primary key of queue_progress.
insert into queue_progress (consumers, topic, queue, next_number, unfinished, changed_ms)
select item.column1, item.column2, item.column3, item.column4, item.column5, ?1
from (values (?, ?, ?, ?, ?)) as item
where item.column1 is not null
on conflict (topic, queue, consumers) do update set
    next_number = excluded.next_number, unfinished = excluded.unfinished, changed_ms = excluded.changed_ms
