-- The number of the step that was taken. $1 version.
-- Served by: the primary key of store_meta.
update store_meta set value = $1 where name = 'schema_version'
