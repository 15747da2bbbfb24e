-- 1 000 000 final messages, 60 000 live ones of the nodes that run, 100 000 attempts, 100 000 entries of queues.
insert into history
    (seq, created_ms, decided_ms, finished_ms, done, node, attempts, state, gid, decided_by, reason, body)
select
    i / 3, i, i, i, 1, 100 + i % 3, 0, 4, 'old-' || lpad(i::text, 8, '0'), 'submit', '', convert_to('body', 'UTF8')
from generate_series(1, 1000000) i;

insert into message
    (gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body)
select
    'live-' || node.id || '-' || lpad(i::text, 8, '0'), 2 + i % 2, node.id, node.epoch, 1, i * 7 % 977, i, 0, '', 0,
    i % 20 = 0, 0, convert_to('body', 'UTF8')
from generate_series(1, 60000) i, node where node.owner <> '';

insert into attempt (at_ms, status, latency_ms, gid, kind, branch_id, target, result, error)
select i, 500, 1, 'old-' || lpad(i::text, 8, '0'), 'branch', '01', 'http://b/in', 'failure', 'refused'
from generate_series(1, 100000) i;

insert into queue_entry (number, stored_ms, queue, branch, topic, gid)
select i + 1000000, i, i % 2, 7, 'orders', 'old-' || lpad(i::text, 8, '0') from generate_series(1, 100000) i;
