-- A page of the live rows that a person looks for, the greatest gid first; bounded from below, see search_live_floor.
-- ?1 gid before which it begins, ?2 least gid, ?3 and ?4 states, ?5 and ?6 parked, ?7 and ?8 created from and before,
-- ?9 part of the body or null, ?10 limit, ?11 owner or null.
-- Served by: the primary key of message.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner
from message
where gid < ?1 and gid >= ?2 and state in (?3, ?4) and parked in (?5, ?6)
    and created_ms >= ?7 and created_ms < ?8 and (?9 is null or instr(body, ?9) > 0)
    and (?11 is null or owner = ?11)
order by gid desc
limit ?10
