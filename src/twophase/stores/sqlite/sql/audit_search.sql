-- A page of the audit log, the newest first. ?1 number before which it begins, ?2 least number, ?3 target,
-- ?4 who, ?5 act, each empty for any, ?6 the earliest time, ?7 limit.
-- Served by: the primary key of audit_log.
select seq, at_ms, node, who, peer, act, target, reason, state_before, state_after, previous, hash
from audit_log
where seq < ?1 and seq >= ?2 and at_ms >= ?6
    and (?3 = '' or target = ?3) and (?4 = '' or who = ?4) and (?5 = '' or act = ?5)
order by seq desc
limit ?7
