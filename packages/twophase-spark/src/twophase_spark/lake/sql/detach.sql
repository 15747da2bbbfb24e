-- Nobody archives this store any more.
-- Served by: the primary key of store_meta.
delete from store_meta where name in ('archive_lake', 'archived_until_ms', 'audit_archived_through')
