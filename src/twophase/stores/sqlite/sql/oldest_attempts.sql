-- A page of attempts from its old end, and whether each one stays: its message is live, and not more than ?2 are newer.
-- ?1 last id seen, ?2 how many newer ones, ?3 limit.
-- Served by: the primary keys of attempt and message, attempt_gid.
select id, at_ms, case when exists (select 1 from message where message.gid = attempt.gid) then (
    select newer.id from attempt as newer
    where newer.gid = attempt.gid and newer.id > attempt.id
    order by newer.id
    limit 1 offset ?2
) is null else 0 end
from attempt where id > ?1 order by id limit ?3
