-- The database's clock.
-- Served by: nothing to look up.
select floor(extract(epoch from clock_timestamp()) * 1000)::bigint
