-- Refused while two rows share a key.
alter table {table} add constraint {constraint} unique (gid, branch_id, op, barrier_id)
