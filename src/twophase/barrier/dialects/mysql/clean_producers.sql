-- One row at a time. With a list of keys the optimizer may read the whole of a small table, and would wait for, and
-- lock, the rows of transactions under way. The reason for which the row was chosen is repeated: since it was read,
-- another cleaner may have removed it, and its id may be another row's. Primary key.
delete from {table}
where id = :id and gid = :gid
  and trans_type = 'msg' and branch_id = '00' and op = 'msg' and barrier_id = '01'
  and prepared_at < :horizon
