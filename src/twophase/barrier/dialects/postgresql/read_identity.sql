-- Touches the barrier table and twophase's columns too, so that a missing one is known before prepare; and returns the
-- reason, in words, why this database must not decide. A meta table that the search path finds in another schema than
-- the barrier does not count.
-- Primary keys.
select meta.value,
       case when pg_is_in_recovery() then 'it is a standby, in recovery'
            when exists (select 1 from pg_subscription_rel where srrelid = to_regclass('{table}'))
              then 'a subscription of logical replication writes its barrier table'
       end,
       (select token from {table} where gid = '' and body is null and prepared_at is null limit 1)
from {meta} as meta
where meta.name = '{identity}'
  and (select relnamespace from pg_class where oid = meta.tableoid)
    = (select relnamespace from pg_class where oid = to_regclass('{table}'))
