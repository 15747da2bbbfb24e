-- dtm's columns may be null; a null would equal no other, so the key would let the row in twice.
alter table {table}
  alter column gid set not null,
  alter column branch_id set not null,
  alter column op set not null,
  alter column barrier_id set not null
