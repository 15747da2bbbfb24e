-- Which lake the store is archived into, and up to when.
-- Served by: the primary key of store_meta.
select name, value from store_meta where name in ('archive_lake', 'archived_until_ms')
