-- A process takes a place that nobody holds, with the rows that are still there. An expired place is left to adoption,
-- which knows by a whole lease of contact that its holder is gone, and not merely about to report after an outage.
-- The new fence ends whatever the holder before has begun: this waits for a flush of it that is being committed, and one
-- not begun finds no row. $1 owner, $2 the clock or null.
-- Served by: the primary key of node; there are as many rows as there ever were nodes at once.
update node set
    fence = fence + 1, owner = $1,
    seen_ms = coalesce($2::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
where id = (
    select id from node
    where owner = ''
    order by id
    limit 1
    for update
)
returning id, epoch, fence, flushes
