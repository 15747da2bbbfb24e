-- Gids born before the first may have been forgotten; before the second, history is archived (null: nobody archives);
-- up to the third, the audit log is.
-- Served by: the primary key of store_meta.
select value, (select value from store_meta where name = 'archived_until_ms'),
    (select value from store_meta where name = 'audit_archived_through')
from store_meta where name = 'history_horizon_ms'
