-- Removes the beginning of the audit log, and keeps the end of what is removed. Another node may have removed as much or
-- more meanwhile. $1 the last number that goes.
-- Served by: the primary keys of audit_head and audit_log.
with gone as (
    delete from audit_log where seq <= $1 returning seq, hash
)
update audit_head set anchor_seq = gone.seq, anchor_hash = gone.hash
from gone
where audit_head.id = 1 and gone.seq = $1
