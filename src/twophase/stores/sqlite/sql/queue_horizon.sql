-- Entries that were stored before this may have been removed; it never falls. ?1 horizon.
-- Served by: the primary key of store_meta.
insert into store_meta (name, value) values ('queue_horizon_ms', ?1)
on conflict (name) do update set value = max(value, excluded.value)
