-- 100 messages of a place that nobody holds, half of them parked.
insert into node (id, epoch, fence, owner, seq, flushes, seen_ms, refused)
values (500, 2, 2, '', 0, 0, 0, '{}') on conflict do nothing;

insert into message
    (gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body)
select 'orphan-' || i, 2, 500, 1, 1, i, i, 0, '', 0, i % 2 = 0, 0, '' from generate_series(1, 100) i
on conflict (gid) do update set node = 500, epoch = 1;
