-- The end of the audit log's chain. ?1 number and ?2 hash of its last row.
-- Served by: the primary key of audit_head.
update audit_head set seq = ?1, hash = ?2 where id = 1
