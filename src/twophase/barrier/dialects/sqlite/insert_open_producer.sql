-- `insert_producer` of a message that is open: the empty body says that the branches added inside the transaction are
-- not written yet. A row that is committed so is no verdict.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, body, prepared_at)
values ('msg', :gid, '00', 'msg', '01', 'msg', :token, x'', :prepared_at)
on conflict (gid, branch_id, op, barrier_id) do nothing
returning cast((julianday('now') - 2440587.5) * 86400000 as integer),
          (select cast(value as text) from {meta} where name = '{identity}')
