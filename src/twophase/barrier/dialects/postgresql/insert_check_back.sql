-- The update writes the row: so this commit flushes the log behind the commit it read, and each of several waiters gets
-- the row back (with DO NOTHING they would not). The time is always another, because a trigger may suppress an
-- update that changes nothing.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time, update_time)
values ('msg', :gid, '00', 'msg', '01', 'rollback', :token, :prepared_at, now(), now())
on conflict (gid, branch_id, op, barrier_id) do update set update_time = clock_timestamp()
returning gid, reason, token, body
