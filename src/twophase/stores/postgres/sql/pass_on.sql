-- Gives prepared messages of this node to another one that lives. What has changed or moved since stays. $1 gids, $2 versions, $3 this
-- node, $4 its epoch, $5 the other node.
-- "+ 0": else a plan made over empty tables walks all the place's rows, and is kept.
-- Served by: the primary keys of message and node.
update message set node = heir.id, epoch = heir.epoch
from unnest($1::text[], $2::integer[]) as item (gid, version)
cross join lateral (select node.id, node.epoch from node where node.id = $5 and node.owner <> '') as heir
where message.gid = any (array[item.gid]) and message.version = item.version
    and message.node + 0 = $3 and message.epoch + 0 = $4 and message.state + 0 = 2
