-- What is due later than some time, a page at a time. ?1 and ?2 due and gid of the last row seen, ?3 limit.
-- Served by: message_due, in its order.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner
from message
where parked = 0 and (due_ms, gid) > (?1, ?2)
order by due_ms, gid
limit ?3
