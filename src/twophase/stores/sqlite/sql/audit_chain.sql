-- A page of the audit log in the order of its chain. ?1 the number behind which it begins, ?2 limit.
-- Served by: the primary key of audit_log.
select seq, at_ms, node, who, peer, act, target, reason, state_before, state_after, previous, hash
from audit_log where seq > ?1 order by seq limit ?2
