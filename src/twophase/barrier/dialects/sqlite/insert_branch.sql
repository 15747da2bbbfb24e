-- No row comes back when this branch has a row already; the violation of any other key is an error.
-- 'unfinished' until finish_branch.sql, so that a commit inside the block never looks like a whole effect.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token)
values ('msg', :gid, :branch_id, :op, '01', 'unfinished', :token)
on conflict (gid, branch_id, op, barrier_id) do nothing
returning 1
