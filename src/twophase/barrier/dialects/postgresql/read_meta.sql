-- A statement of its own, after the insert: READ COMMITTED gives it a younger snapshot. Primary key.
select name, value from {meta} where name in ('identity', 'horizon_ms')
