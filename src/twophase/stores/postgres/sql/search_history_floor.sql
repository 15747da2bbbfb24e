-- Of each node the last final message that a page may look at. $1 nodes, $2 numbers before which they begin, $3 rows
-- before it.
-- Served by: the primary key of history, backwards.
select one.*
from unnest($1::integer[], $2::bigint[]) as part (of_node, below)
cross join lateral (
    select node, seq, finished_ms from history
    where node = part.of_node and seq < part.below
    order by seq desc limit 1 offset $3
) as one
