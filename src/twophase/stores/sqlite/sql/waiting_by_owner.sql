-- What waits of each owner: messages, and bytes of their bodies. ?1 limit. Reads all live rows, in the background.
-- Served by: the primary key of message, from end to end.
select owner, count(*), sum(length(body)) from message where owner is not null group by owner limit ?1
