-- Gids born before this may be forgotten from now on; it never falls. ?1 horizon, 0 when no gid is.
-- Served by: the primary key of store_meta.
update store_meta set value = max(value, ?1) where name = 'history_horizon_ms'
