-- What is due, a page at a time. ?1 until, ?2 and ?3 due and gid of the last row seen, ?4 limit.
-- Served by: message_due, in its order.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner
from message
where parked = 0 and (due_ms, gid) > (?2, ?3) and due_ms <= ?1
order by due_ms, gid
limit ?4
