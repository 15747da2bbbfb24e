-- What went wrong, appended.
-- A row: gid, kind, branch id, target, at, status, latency, result, error.
-- Served by: nothing to look up.
insert into attempt (gid, kind, branch_id, target, at_ms, status, latency_ms, result, error)
select
    item.column1, item.column2, item.column3, item.column4, item.column5, item.column6, item.column7,
    item.column8, item.column9
from (values (?, ?, ?, ?, ?, ?, ?, ?, ?)) as item
where item.column1 is not null
