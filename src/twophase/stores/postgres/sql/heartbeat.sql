-- Renews the lease. No row: another process holds the place. $1 node, $2 fence, $3 the clock or null.
-- Whoever was seen later than now was seen by a clock that has fallen back, as with a failover to a host that is behind.
-- He counts as seen now: if he is alive he says so himself within the lease; if not, it ends no later for that. A place
-- that somebody is changing is his who lives, and not waited for.
-- Served by: the primary key of node; there are as many rows as there ever were nodes at once.
with ahead as (
    update node set seen_ms = coalesce($3::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
    where id = any (array(
        select other.id from node as other
        where other.id <> $1 and other.owner <> ''
            and other.seen_ms > coalesce($3::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
        for update skip locked
    ))
)
update node set seen_ms = coalesce($3::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
where id = $1 and fence = $2
returning seen_ms
