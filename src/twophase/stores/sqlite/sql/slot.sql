-- Where a node stands, and the history horizon as this transaction sees it. ?1 node.
-- Served by: the primary keys of node and store_meta.
select epoch, owner, seq, commit_count, (select value from store_meta where name = 'history_horizon_ms')
from node where id = ?1
