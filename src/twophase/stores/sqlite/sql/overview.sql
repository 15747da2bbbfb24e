-- Counts of the live rows. Reads two indexes from end to end, no bodies: it is asked for by metrics, not by messages.
-- ?1 due by: for the last column.
-- Served by: message_due and message_parked, both covering.
select
    coalesce(sum(state = 2), 0), coalesce(sum(state = 3), 0), coalesce(sum(parked), 0),
    min(case state when 2 then created_ms end), min(case state when 3 then decided_ms end),
    min(case when state = 3 and due_ms <= ?1 then created_ms end)
from (
    select state, 0 as parked, due_ms, created_ms, decided_ms from message where parked = 0
    union all
    select state, 1 as parked, 0 as due_ms, created_ms, decided_ms from message where parked = 1
)
