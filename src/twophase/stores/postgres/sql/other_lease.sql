-- A place that is held at this moment by another lease than the asker's. Holders that do not say theirs are left out.
-- $1 the asker's node, $2 its lease, $3 the clock or null.
-- Served by: the primary key of node; there are as many rows as there ever were nodes at once.
select id, lease_ms
from (select id, seen_ms, nullif(split_part(owner, '/', 2), '')::bigint as lease_ms from node) as held
where id <> $1 and lease_ms <> $2
    and seen_ms + lease_ms >= coalesce($3::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
order by id
limit 1
