-- What no longer stands as it was known. A scalar sub-select, as a join may be planned as a walk over the table.
-- $1 gids, $2 versions, $3 node, $4 epoch.
-- Served by: the primary key of message.
select item.gid
from unnest($1::text[], $2::integer[]) as item (gid, version)
where (
    select true from message
    where message.gid = item.gid and message.version = item.version and message.node = $3 and message.epoch = $4
) is null
