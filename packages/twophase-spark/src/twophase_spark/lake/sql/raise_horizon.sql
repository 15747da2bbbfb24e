-- Gids born before ? may be forgotten from now on; it never falls. ? the time, the same.
-- Served by: the primary key of store_meta.
update store_meta set value = ? where name = 'history_horizon_ms' and value < ?
