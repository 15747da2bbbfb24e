-- Prepared messages whose check-back is due in a year. Fills message_due.
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < :count)
insert into message (
    gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body
)
select printf('tp%010x', n) || lower(hex(randomblob(8))), 2, node.id, node.epoch, 1,
       :now + 31536000000, :now - :count + n, 0, '', 0, 0, 0, x':body'
from node, numbers
where node.id = 1
