-- The clock is read in RETURNING, that is after the row was written and after any wait for its key.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time, update_time)
values ('msg', :gid, '00', 'msg', '01', 'msg', :token, :prepared_at, now(), now())
returning cast(extract(epoch from clock_timestamp()) * 1000 as bigint)
