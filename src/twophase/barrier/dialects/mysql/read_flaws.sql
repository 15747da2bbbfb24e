-- What makes this table useless as a barrier: which flaw, and in words; no row when nothing does. An index over the
-- beginning of a column would take two keys for one.
select 'key', 'it has no unique key over exactly gid, branch_id, op and barrier_id'
from dual
where not exists (
  select index_name
  from information_schema.statistics
  where table_schema = coalesce(:schema, database()) and table_name = :name and non_unique = 0
  group by index_name
  having count(*) = 4 and sum(column_name in ('gid', 'branch_id', 'op', 'barrier_id') and sub_part is null) = 4
)
union all
select 'null', concat('its column ', column_name, ' may be null')
from information_schema.columns
where table_schema = coalesce(:schema, database()) and table_name = :name
  and column_name in ('gid', 'branch_id', 'op', 'barrier_id') and is_nullable = 'YES'
union all
select 'lasting', 'it is not an InnoDB table, so it takes no part in transactions'
from information_schema.tables
where table_schema = coalesce(:schema, database()) and table_name = :name and engine <> 'InnoDB'
