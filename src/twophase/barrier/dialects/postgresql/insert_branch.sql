-- Refused by uniq_barrier when this branch has taken effect before.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, create_time, update_time)
values ('msg', :gid, :branch_id, :op, '01', :op, :token, now(), now())
