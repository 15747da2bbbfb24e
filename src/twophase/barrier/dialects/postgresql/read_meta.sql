-- A statement of its own, after the insert: READ COMMITTED gives it a younger snapshot. Only the meta table of the
-- barrier's own schema counts, whatever the search path finds. `replica` is why this database must not decide,
-- `unusable` why this table must not: a search path, or a temporary table, may have put it before the one that was
-- proven.
-- Primary keys.
select case meta.name when '{identity}' then 'identity' else 'horizon_ms' end, meta.value
from {meta} as meta
where meta.name in ('{identity}', '{horizon_ms}')
  and (select relnamespace from pg_class where oid = meta.tableoid)
    = (select relnamespace from pg_class where oid = to_regclass('{table}'))
union all
select 'replica', 'a subscription of logical replication writes its barrier table'
where exists (select 1 from pg_subscription_rel where srrelid = to_regclass('{table}'))
union all
select 'unusable', 'it is unlogged or temporary, so a crash empties it'
from pg_class
where oid = to_regclass('{table}') and relpersistence <> 'p'
