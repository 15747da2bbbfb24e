-- Where a message's branch is. ?1 gid, ?2 branch.
-- Served by: queue_entry_gid.
select topic, queue, number from queue_entry where gid = ?1 and branch = ?2
