-- Names the lake a store is archived into, unless one is named. ? the lake.
-- Served by: the primary key of store_meta.
insert into store_meta (name, value) values ('archive_lake', ?) on conflict (name) do nothing
