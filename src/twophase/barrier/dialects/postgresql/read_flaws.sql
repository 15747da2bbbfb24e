-- What makes this table useless as a barrier: which flaw, and in words; no row when nothing does. The index must be one
-- that refuses a second row at once, whichever its other columns are. Catalogs, by keys.
with barrier as (
  select oid, relpersistence
  from pg_class
  where oid = to_regclass(case when cast(:schema as text) is null then cast(:name as text)
                               else cast(:schema as text) || '.' || cast(:name as text) end)
)
select 'key', 'it has no unique key over exactly gid, branch_id, op and barrier_id'
from barrier
where not exists (
  select 1
  from pg_index
  where indrelid = barrier.oid and indisunique and indisvalid and indimmediate and indpred is null and indnkeyatts = 4
    and array['barrier_id', 'branch_id', 'gid', 'op'] = (
      select array_agg(cast(attname as text) order by cast(attname as text) collate "C")
      from pg_attribute
      where attrelid = barrier.oid and attnum = any ((cast(indkey as int2[]))[0:3])
    )
)
union all
select 'null', 'its column ' || attname || ' may be null'
from barrier
join pg_attribute on attrelid = barrier.oid
where attname in ('gid', 'branch_id', 'op', 'barrier_id') and not attnotnull and not attisdropped
union all
select 'lasting', 'it is unlogged or temporary, so a crash empties it'
from barrier
where relpersistence <> 'p'
union all
select 'lasting', 'its partition ' || relname || ' is unlogged or temporary, so a crash empties it'
from barrier
join pg_class as part on part.oid in (select relid from pg_partition_tree(barrier.oid))
where part.oid <> barrier.oid and part.relpersistence <> 'p'
union all
select 'trigger', 'its trigger ' || tgname || ' runs at COMMIT, behind the last look at the row'
from barrier
join pg_trigger on tgrelid = barrier.oid
where tgdeferrable and not tgisinternal and tgenabled <> 'D'
