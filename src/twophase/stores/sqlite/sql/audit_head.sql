-- Both ends of the audit log's chain.
-- Served by: the primary key of audit_head.
select seq, hash, anchor_seq, anchor_hash from audit_head where id = 1
