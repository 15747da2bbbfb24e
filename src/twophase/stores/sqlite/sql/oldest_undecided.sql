-- Prepared rows older than ?1, a page at a time, parked or not. ?2 and ?3 created and gid of the last one, ?4 limit.
-- Reads two indexes from end to end, no bodies but those of the page: an index in this order would make every prepare
-- and every decision dearer for a question that is asked once a minute.
-- Served by: message_due and message_parked, both covering; the primary key of message.
select gid, state, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body, owner
from message
where gid in (
    select gid from (
        select gid, created_ms from message
        where parked = 0 and state = 2 and created_ms < ?1 and (created_ms, gid) > (?2, ?3)
        union all
        select gid, created_ms from message
        where parked = 1 and state = 2 and created_ms < ?1 and (created_ms, gid) > (?2, ?3)
    )
    order by created_ms, gid limit ?4
)
order by created_ms, gid
