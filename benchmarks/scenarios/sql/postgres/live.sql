-- Prepared messages whose check-back is due in a year, of the node that runs or ran here. Fills message_due.
insert into message (
    due_ms, created_ms, decided_ms, done, node, epoch, version, attempts, state, parked, gid, decided_by, body
)
select :now + 31536000000, :now - :count + n, 0, 0, node.id, node.epoch, 1, 0, 2, false,
       'tp' || lpad(to_hex(n), 10, '0') || substr(md5(n::text), 1, 16), '', '\x:body'::bytea
from node, generate_series(1, :count) as n
where node.id = 1
