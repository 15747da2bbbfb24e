-- The audit log is archived up to ? and may be forgotten so far; it never falls. ? the row, the lake.
-- Served by: the primary key of store_meta.
insert into store_meta (name, value)
select 'audit_archived_through', ?
where (select value from store_meta where name = 'archive_lake') = ?
on conflict (name) do update set value = excluded.value where store_meta.value < excluded.value
