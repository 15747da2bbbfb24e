-- Gids born before this may have been forgotten.
-- Served by: the primary key of store_meta.
select value from store_meta where name = 'history_horizon_ms'
