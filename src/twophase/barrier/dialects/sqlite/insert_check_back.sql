-- The update writes the row, so this commit syncs the log behind the commit it read, whatever the producer's settings.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at)
values ('msg', :gid, '00', 'msg', '01', 'rollback', :token, :prepared_at)
on conflict (gid, branch_id, op, barrier_id) do update set update_time = strftime('%Y-%m-%d %H:%M:%f', 'now')
returning cast(gid as text), cast(reason as text), cast(token as text), cast(body as blob)
