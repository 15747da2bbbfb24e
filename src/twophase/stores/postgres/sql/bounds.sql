-- How far history was cleaned, and how far an archive lets it and the audit log be.
-- Served by: the primary key of store_meta.
select
    (select value from store_meta where name = 'history_horizon_ms'),
    (select value from store_meta where name = 'archived_until_ms'),
    (select value from store_meta where name = 'audit_archived_through')
