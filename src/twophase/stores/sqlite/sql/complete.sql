-- New messages that enter history at once. A gid that is taken, live or in history, is left out, which the count of
-- changed rows shows.
-- ?1 node, ?2 last seq used, ?3 now; a row: place in this statement from 1, gid, done, body, owner.
-- Served by: the primary key of message (the look for a live row); history_gid (the conflict).
insert into history
    (node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body, owner)
select ?1, ?2 + item.column1, item.column2, 4, ?3, ?3, ?3, 'submit', '', 0, item.column3, item.column4, item.column5
from (values (?, ?, ?, ?, ?)) as item
where item.column1 is not null and not exists (select 1 from message where message.gid = item.column2)
on conflict (gid) do nothing
