-- Not INSERT IGNORE, which cuts values silently; a taken key is an error that takes back this statement only.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at)
values ('msg', :gid, '00', 'msg', '01', 'msg', :token, :prepared_at)
