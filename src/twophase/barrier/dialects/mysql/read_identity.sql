-- Touches the barrier table and twophase's columns too, so that a missing one is known before prepare; and returns the
-- reason, in words, why this database must not decide. Primary key.
select value,
       if(cast(@@global.read_only as char) not in ('0', 'OFF'), 'it is read-only, as replicas are', null),
       (select token from {table} where gid = '' and body is null and prepared_at is null limit 1)
from {meta}
where name = '{identity}'
