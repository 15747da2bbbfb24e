-- Primary key. `replica` is why this database must not decide; a user with READ ONLY ADMIN could write to it. From 12.0
-- on, MariaDB has words for the variable: OFF, ON, NO_LOCK, NO_LOCK_NO_ADMIN.
select case name when '{identity}' then 'identity' else 'horizon_ms' end, value
from {meta}
where name in ('{identity}', '{horizon_ms}')
union all
select 'replica', 'it is read-only, as replicas are'
from dual
where cast(@@global.read_only as char) not in ('0', 'OFF')
