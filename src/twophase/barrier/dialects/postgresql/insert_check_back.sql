-- The update, though it changes nothing, writes the row: so our commit flushes the log behind the commit we read, and
-- each of several waiters gets the row back (with DO NOTHING they would get none).
insert into {table} as known (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time,
                              update_time)
values ('msg', :gid, '00', 'msg', '01', 'rollback', :token, :prepared_at, now(), now())
on conflict (gid, branch_id, op, barrier_id) do update set reason = known.reason
returning gid, reason, token, body
