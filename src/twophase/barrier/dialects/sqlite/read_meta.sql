-- Primary key.
select case name when '{identity}' then 'identity' else 'horizon_ms' end, cast(value as text)
from {meta}
where name in ('{identity}', '{horizon_ms}')
