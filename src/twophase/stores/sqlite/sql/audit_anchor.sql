-- The beginning of the audit log's chain: the last row that is removed. ?1 its number.
-- Served by: the primary keys of audit_head and audit_log.
update audit_head set anchor_seq = ?1, anchor_hash = (select hash from audit_log where seq = ?1) where id = 1
