-- What was finished before ? is archived and may be forgotten; it never falls. ? the time, the lake, the time.
-- Served by: the primary key of store_meta.
update store_meta set value = ?
where name = 'archived_until_ms'
    and (select value from store_meta where name = 'archive_lake') = ?
    and value < ?
