-- One row of the audit log.
-- Served by: the primary key of audit_log.
insert into audit_log
    (seq, at_ms, node, who, peer, act, target, reason, state_before, state_after, previous, hash)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
