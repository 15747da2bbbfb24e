-- What makes this table useless as a barrier: which flaw, and in words; no row when nothing does.
select 'key', 'it has no unique key over exactly gid, branch_id, op and barrier_id'
where not exists (
  select 1
  from pragma_index_list(:name, coalesce(:schema, 'main')) as known
  where known."unique" = 1 and known.partial = 0
    and 'barrier_id,branch_id,gid,op' = (
      select group_concat(name)
      from (select lower(name) as name
            from pragma_index_info(known.name, coalesce(:schema, 'main'))
            order by lower(name))
    )
)
union all
select 'null', 'its column ' || name || ' may be null'
from pragma_table_info(:name, coalesce(:schema, 'main'))
where lower(name) in ('gid', 'branch_id', 'op', 'barrier_id') and "notnull" = 0
