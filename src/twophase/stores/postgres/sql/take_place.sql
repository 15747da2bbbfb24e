-- A process takes a place that nobody holds, or whose holder has missed its lease, with the rows that are still there.
-- The new fence ends whatever the one before has begun: this waits for a flush of it that is being committed, and one
-- not begun finds no row. $1 owner, $2 the clock or null, $3 lease in ms.
-- Served by: the primary key of node; there are as many rows as there ever were nodes at once.
update node set
    fence = fence + 1, owner = $1,
    seen_ms = coalesce($2::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
where id = (
    select id from node
    where owner = ''
        or seen_ms < coalesce($2::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) - $3::bigint
    order by id
    limit 1
    for update
)
returning id, epoch, fence, flushes
