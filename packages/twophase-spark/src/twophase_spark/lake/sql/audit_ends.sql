-- The last row of the audit log that was removed, and the last one there is.
-- Served by: the primary key of audit_head.
select anchor_seq, seq from audit_head where id = 1
