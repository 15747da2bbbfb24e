-- A page of attempts from its old end, and whether each one stays: its message is live, and it is among its newest.
-- ?1 last id seen, ?2 how many of a message are newer than its oldest that stays, ?3 limit.
-- Served by: the primary keys of attempt and message, attempt_gid backwards.
select id, at_ms, case when exists (select 1 from message where message.gid = attempt.gid) then coalesce(
    attempt.id >= (
        select newest.id from attempt as newest where newest.gid = attempt.gid
        order by newest.id desc
        limit 1 offset ?2
    ),
    1
) else 0 end
from attempt where id > ?1 order by id limit ?3
