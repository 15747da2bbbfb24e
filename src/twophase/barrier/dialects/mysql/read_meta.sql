-- Primary key. `replica` is why this database must not decide; a user with READ ONLY ADMIN could write to it.
select case name when '{identity}' then 'identity' else 'horizon_ms' end, value
from {meta}
where name in ('{identity}', '{horizon_ms}')
union all
select 'replica', 'it is read-only, as replicas are'
from dual
where @@global.read_only
