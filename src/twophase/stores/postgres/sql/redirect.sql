-- A flush of redirects and evidence alone, in one statement: fence, changes, evidence, and what a flush leaves in the
-- node's row. Beside twophase_flush_owned, as operators redirect seldom, and every flush would carry the column of bodies.
-- $1 node, $2 epoch, $3 fence, $4 the clock or null, $5 gids, $6 versions, $7 dues, $8 dones, $9 bodies, $10 to $18 the
-- columns of attempts, null without, $19 to $26 those of acts, see ../audit.sql. Answers as twophase_flush does: no row when the fence is down; else
-- {at_ms, horizon_ms, refused...}.
-- Served by: the primary keys of node, message and store_meta.
with place as (
    select id from node where id = $1 and fence = $3 for update
),
changed as (
    update message set
        node = $1, epoch = $2, version = message.version + 1, due_ms = item.due, attempts = 0, done = item.done,
        body = item.body
    from place, unnest($5::text[], $6::integer[], $7::bigint[], $8::bigint[], $9::bytea[])
        as item (gid, version, due, done, body)
    where message.gid = any (array[item.gid]) and message.version = item.version
    returning message.gid
),
noted as (
    insert into attempt (gid, kind, branch_id, target, at_ms, status, latency_ms, result, error)
    select note.*
    from place, unnest(
        $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::integer[], $16::integer[], $17::text[],
        $18::text[]
    ) as note
),
told as (
    update node set
        flushes = node.flushes + 1,
        refused = array(
            select item.place::integer from unnest($5::text[]) with ordinality as item (gid, place)
            where item.gid <> all (array(select gid from changed))
        ),
        seen_ms = coalesce($4::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
    from place where node.id = place.id
    returning node.seen_ms, node.refused
)
select twophase_audit(
    array[told.seen_ms, (select value from store_meta where name = 'history_horizon_ms')] || told.refused::bigint[],
    $1, $19, $20, $21, $22, $23, $24, $25, $26
)
from told
