-- Gids born before this may have ended at another coordinator; it never falls. $1 time, $2 false: only if there is none
-- yet.
-- Served by: the primary key of store_meta.
insert into store_meta (name, value) values ('taken_over_ms', $1)
on conflict (name) do update set value = case when $2 then greatest(store_meta.value, $1) else store_meta.value end
