-- From now on nothing is forgotten that was not archived.
-- Served by: the primary key of store_meta.
insert into store_meta (name, value) values ('archived_until_ms', 0) on conflict (name) do nothing
