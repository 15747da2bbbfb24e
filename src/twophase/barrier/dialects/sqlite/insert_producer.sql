-- No row comes back when the message has a row already; the violation of any other key is an error.
-- The clock is read under the write lock. The identity is that of the table written.
-- 2440587.5 is the Julian day of 1970-01-01.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at)
values ('msg', :gid, '00', 'msg', '01', 'msg', :token, :prepared_at)
on conflict (gid, branch_id, op, barrier_id) do nothing
returning cast((julianday('now') - 2440587.5) * 86400000 as integer),
          (select cast(value as text) from {meta} where name = '{identity}')
