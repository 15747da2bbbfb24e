-- Submitted messages that are due, of the node that runs or ran here, a millisecond apart. Fills message_due.
with new (n, gid) as (
    select n, 'tp' || lpad(to_hex(n), 10, '0') || substr(md5('due' || n), 1, 16) from generate_series(1, :count) as n
)
insert into message (
    due_ms, created_ms, decided_ms, done, node, epoch, version, attempts, state, parked, gid, decided_by, body
)
select :now - :count + n, :now - :count + n, :now - :count + n, 0, node.id, node.epoch, 1, 0, 3, false,
       new.gid, 'submit', '\x:before'::bytea || convert_to(new.gid, 'UTF8') || '\x:after'::bytea
from node, new
where node.id = 1
