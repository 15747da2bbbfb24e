-- New messages. A gid that is taken, live or in history, is left out, which the count of changed rows shows.
-- ?1 node, ?2 epoch, ?3 now; a row: gid, state, due in ms, body, owner.
-- Served by: history_gid (the look into history), the primary key of message (the conflict).
insert into message
    (gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body,
    owner)
select
    item.column1, item.column2, ?1, ?2, 1, ?3 + item.column3, ?3,
    case item.column2 when 3 then ?3 else 0 end,
    case item.column2 when 3 then 'submit' else '' end,
    0, 0, 0, item.column4, item.column5
from (values (?, ?, ?, ?, ?)) as item
where item.column1 is not null
    and not exists (select 1 from history where history.gid = item.column1)
on conflict do nothing
