-- Which lake the store is archived into, and which gids may have been forgotten.
-- Served by: the primary key of store_meta.
select name, value from store_meta where name in ('archive_lake', 'history_horizon_ms')
