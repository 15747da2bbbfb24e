-- Submitted messages that are due, a millisecond apart. Fills message_due.
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < :count)
insert into message (
    gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body
)
select new.gid, 3, node.id, node.epoch, 1,
       :now - :count + new.n, :now - :count + new.n, :now - :count + new.n, 'submit', 0, 0, 0,
       cast(x':before' || new.gid || x':after' as blob)
from node, (select n, printf('tp%010xfedcba9876543210', n) as gid from numbers) as new
where node.id = 1
