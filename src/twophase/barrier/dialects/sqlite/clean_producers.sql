-- By keys alone. The reason for which the rows were chosen is repeated: since they were read, another cleaner may have
-- removed them, and their ids may be other rows'. Primary key.
delete from {table}
where id in (:ids) and gid in (:gids)
  and trans_type = 'msg' and branch_id = '00' and op = 'msg' and barrier_id = '01'
  and prepared_at < :horizon
returning cast(id as integer)
