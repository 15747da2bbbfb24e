-- A flush of redirects, early decisions and evidence alone, in one statement: fence, changes, evidence, and what a flush
-- leaves in the node's row. Beside twophase_flush_owned, as these are seldom, and every flush would carry their columns.
-- $1 node, $2 epoch, $3 fence, $4 the clock or null, $5 gids, $6 versions, $7 dues, from now for a decision, $8 dones,
-- $9 bodies, null for those that stay, $10 attempts, $11 deciders, null for a redirect, $12 to $20 the columns of
-- attempts, null without, $21 to $28 those of acts, see ../audit.sql. Answers as twophase_flush does: no row when the
-- fence is down; else {at_ms, horizon_ms, refused...}.
-- Served by: the primary keys of node, message and store_meta.
with held as (
    select id from node where id = $1 and fence = $3 for update
),
place as materialized (
    select id, coalesce($4::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as at_ms from held
),
changed as (
    update message set
        node = $1, epoch = $2, version = message.version + 1,
        state = case when item.decider is null then message.state else 3 end,
        due_ms = item.due + case when item.decider is null then 0 else place.at_ms end,
        decided_ms = case when item.decider is null then message.decided_ms else place.at_ms end,
        decided_by = coalesce(item.decider, message.decided_by),
        attempts = item.attempts, parked = message.parked and item.decider is null, done = item.done,
        body = coalesce(item.body, message.body)
    from place, unnest(
        $5::text[], $6::integer[], $7::bigint[], $8::bigint[], $9::bytea[], $10::integer[], $11::text[]
    ) as item (gid, version, due, done, body, attempts, decider)
    where message.gid = any (array[item.gid]) and message.version = item.version
        and (item.decider is null or message.state = 2)
    returning message.gid
),
noted as (
    insert into attempt (gid, kind, branch_id, target, at_ms, status, latency_ms, result, error)
    select note.*
    from place, unnest(
        $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::integer[], $18::integer[], $19::text[],
        $20::text[]
    ) as note
),
told as (
    update node set
        flushes = node.flushes + 1,
        refused = array(
            select item.place::integer from unnest($5::text[]) with ordinality as item (gid, place)
            where (select count(*) from changed) <> cardinality($5::text[])
                and item.gid <> all (array(select gid from changed))
        ),
        seen_ms = place.at_ms
    from place where node.id = place.id
    returning node.seen_ms, node.refused
)
select twophase_audit(
    array[told.seen_ms, (select value from store_meta where name = 'history_horizon_ms')] || told.refused::bigint[],
    $1, $21, $22, $23, $24, $25, $26, $27, $28
)
from told
