-- What waits of each owner: messages, and bytes of their bodies. $1 limit. Reads all live rows, in the background; a
-- body that is stored aside is not read for its length.
-- Served by: the table message, from end to end.
select owner, count(*), sum(octet_length(body))::bigint from message where owner is not null group by owner limit $1
