-- The audit's own first look, for DuckDB: every row becomes a few numbers, and the numbers of a gid are summed once.
-- A message in order ends at zero; the others are named. Reads the views journal, producers, consumers and ledgers.
-- Bits of `says`: 1 succeeded, 2 failed, 4 checked, 8 plain, 16 committed, 32 rolled back, 64 anything else.
create or replace table separated as
with
calls as (
    select *, case when len(branches) = 1 then (not regexp_matches(branches[1].url, '^(topic|queue)://'))::int
                   else len(list_filter(branches, lambda one: not regexp_matches(one.url, '^(topic|queue)://'))) end as due
    from journal
),
numbers as (
    select gid, 0 as source,
           case state when 4 then 1 when 5 then 2 else 64 end
               | case when checked then 4 when not checked then 8 else 64 end
               | case when entries <> case when state = 4 then queued else [] end then 64 else 0 end
               | case when due < len(branches) or created_ms > {as_of_ms} + 3600000 then 64 else 0 end as says,
           case when state <> 4 or due = 0 then 0::ubigint
                when len(branches) = 1 then hash(branches[1].branch_id)
                else list_reduce(list_transform(list_filter(branches, lambda one: not regexp_matches(one.url, '^(topic|queue)://')),
                                                lambda one: hash(one.branch_id)), lambda x, y: xor(x, y)) end as hashes,
           case when state = 4 then -due else 0 end as effects, 0 as bookings
    from calls
    union all
    select gid, 1, case reason when 'msg' then 16 when 'rollback' then 32 else 64 end, 0::ubigint, 0, 0
    from producers
    union all
    select gid, case source when 'bank-b' then 2 else 3 end, 0,
           case when source = 'bank-b' then xor(hash(branch_id), hash('ledger', source, branch_id))
                else hash(branch_id) end,
           1, (source = 'bank-b')::int
    from consumers
    union all
    select gid, 4, 0, case when booked then hash('ledger', source, branch_id) else 0::ubigint end, 0, -booked::int
    from (select *, coalesce(branch_id, '') not in ('', '00') as booked from ledgers)
),
summed as (
    select gid, bit_or(says) as says, bit_xor(hashes) as hashes, sum(effects) as effects, sum(bookings) as bookings,
           count(*) filter (where source = 0) as rows0, count(*) filter (where source = 1) as rows1,
           count(*) filter (where source = 2) as rows2, count(*) filter (where source = 3) as rows3,
           count(*) filter (where source = 4) as rows4
    from numbers group by gid
),
judged as (
    select *, says in (0, 32, 21, 9, 38, 10) and hashes = 0 and effects = 0 and bookings = 0 and rows0 <= 1 as ordinary
    from summed
)
select case when not ordinary then gid end as gid, count(*) filter (where says <> 0) as messages,
       sum(rows0) as rows0, sum(rows1) as rows1, sum(rows2) as rows2, sum(rows3) as rows3, sum(rows4) as rows4
from judged group by 1
