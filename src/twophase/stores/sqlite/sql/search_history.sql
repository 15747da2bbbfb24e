-- A page of the final messages that a person looks for, the newest first; bounded from below, see search_history_floor.
-- ?1 node, ?2 number before which it begins, ?3 least number, ?4 and ?5 states, ?6 beginning of the gid, ?7 and ?8
-- created from and before, ?9 part of the body or null, ?10 limit, ?11 owner
-- or null.
-- Served by: the primary key of history.
select gid, state, node, seq, created_ms, decided_ms, decided_by, attempts, finished_ms, done, body, owner, reason
from history
where node = ?1 and seq < ?2 and seq >= ?3 and state in (?4, ?5) and instr(gid, ?6) = 1
    and created_ms >= ?7 and created_ms < ?8 and (?9 is null or instr(body, ?9) > 0)
    and (?11 is null or owner = ?11)
order by seq desc
limit ?10
