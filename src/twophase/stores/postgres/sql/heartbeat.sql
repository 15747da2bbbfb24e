-- Renews the lease. No row: another process holds the place. $1 node, $2 fence, $3 the clock or null.
-- Served by: the primary key of node.
update node set seen_ms = coalesce($3::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
where id = $1 and fence = $2
returning seen_ms
