-- Delivered messages, and the node's numbers moved past them. Fills history_pkey and history_gid.
with used as (
    update node set seq = seq + :count where id = 1 returning id, seq - :count as seq
)
insert into history (
    seq, created_ms, decided_ms, finished_ms, done, node, attempts, state, gid, decided_by, reason, body
)
select used.seq + n, :now - 2 * :count + n, :now - 2 * :count + n, :now - 2 * :count + n, 1, used.id, 1, 4,
       'tp' || lpad(to_hex(n), 10, '0') || substr(md5((-n)::text), 1, 16), 'submit', '', '\x:body'::bytea
from used, generate_series(1, :count) as n
