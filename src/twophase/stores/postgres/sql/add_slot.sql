-- All places are held: one more. No row when another process adds the same one at this moment; then ask again.
-- $1 owner, $2 the clock or null.
-- Served by: the primary key of node.
insert into node (id, epoch, fence, owner, seq, flushes, seen_ms, refused)
select
    coalesce(max(id), 0) + 1, 1, 1, $1, 0, 0,
    coalesce($2::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint), '{}'
from node
on conflict do nothing
returning id, epoch, fence, flushes
