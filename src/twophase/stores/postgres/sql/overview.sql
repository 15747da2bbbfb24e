-- Counts of the live rows of all nodes. Reads two indexes from end to end, no bodies: it is asked for by metrics, not by
-- messages. $1 due by: for the last column.
-- Served by: message_due and message_parked, both covering.
select
    count(*) filter (where state = 2), count(*) filter (where state = 3), count(*) filter (where parked),
    min(created_ms) filter (where state = 2), min(decided_ms) filter (where state = 3),
    min(created_ms) filter (where state = 3 and due_ms <= $1)
from (
    select state, false as parked, due_ms, created_ms, decided_ms from message where not parked
    union all
    select state, true as parked, 0 as due_ms, created_ms, decided_ms from message where parked
) as row
