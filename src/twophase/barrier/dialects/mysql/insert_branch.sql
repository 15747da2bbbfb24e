-- Not INSERT IGNORE, which cuts values silently. A taken key is an error that does not say safely which key it was, so
-- the row is read then. 'unfinished' until finish_branch.sql, so that a commit inside the block never looks like a
-- whole effect.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token)
values ('msg', :gid, :branch_id, :op, '01', 'unfinished', :token)
