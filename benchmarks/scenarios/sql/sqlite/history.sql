-- Delivered messages, and the node's numbers moved past them. Fills history_gid.
update node set seq = seq + :count where id = 1;
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < :count)
insert into history (
    node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body
)
select node.id, node.seq - :count + n, printf('tp%010x', n) || lower(hex(randomblob(8))), 4,
       :now - 2 * :count + n, :now - 2 * :count + n, :now - 2 * :count + n, 'submit', '', 1, 1, x':body'
from node, numbers
where node.id = 1
