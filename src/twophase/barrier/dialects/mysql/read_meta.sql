-- Primary key.
select name, value from {meta} where name in ('identity', 'horizon_ms')
