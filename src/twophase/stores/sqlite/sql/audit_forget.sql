-- Removes the beginning of the audit log. ?1 the last number that goes.
-- Served by: the primary key of audit_log.
delete from audit_log where seq <= ?1
