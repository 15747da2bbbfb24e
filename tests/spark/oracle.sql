-- The taxonomy once more, for DuckDB, written apart from the audit's own columns: full outer joins instead of a union,
-- lists instead of hashes. Counts messages by class. Reads the views journal, producers, consumers and ledgers.
with
branches as (
    select gid, unnest(branches) as branch from journal
),
expected as (
    select gid, list(branch.branch_id) filter (where not regexp_matches(branch.url, '^(topic|queue)://')) as due,
           list(branch.branch_id) as calls,
           list(branch.branch_id) filter (where starts_with(branch.url, 'queue://')) as queues, bool_or(starts_with(branch.url, 'topic://')) as topic,
           count(*) as branch_count
    from branches group by gid
),
verdicts as (
    select gid, bool_or(reason in ('msg', 'msg without branches')) as committed,
           bool_or(reason = 'msg without branches') as bare, bool_or(reason = 'rollback') as rolled_back
    from producers group by gid
),
barriers as (
    select gid, list(branch_id) as ids, count(*) as barrier_rows,
           list(branch_id) filter (where source = 'bank-b') as to_book,
           list(source || '/' || branch_id) as effects
    from consumers group by gid
),
booked as (
    select gid, list(branch_id) as ids, count(*) as ledger_rows, list(source || '/' || branch_id) as effects
    from ledgers
    where branch_id is not null and branch_id not in ('', '00') group by gid
),
named as (
    select gid from ledgers
    union select gid from journal
    union select gid from verdicts
    union select gid from barriers
),
facts as (
    select named.gid, m.known_state is not null as known, m.known_state as state, coalesce(m.decided_by, '') as decided_by,
           coalesce(m.checked, false) as checked, m.known_state is not null and m.checked is null as unreadable,
           coalesce(m.parked, false) as parked,
           coalesce(m.created_ms + coalesce(m.delay_ms, 0) < {as_of_ms} - {late_ms}, false) as old,
           coalesce(v.committed, false) as committed, coalesce(v.bare, false) as bare, coalesce(v.rolled_back, false) as rolled_back,
           v.gid is not null or coalesce(m.identity = '{identity}', false) as given,
           coalesce(e.due, []) as due, e.calls, coalesce(e.queues, []) as queues, coalesce(e.topic, false) as topic, coalesce(e.branch_count, 0) as branch_count,
           coalesce(m.entries, []) as entries, coalesce(m.queued, m.entries, []) as queued, m.entries_cleaned,
           m.state = 3 and len(m.queued) = len(m.branches) as waits,
           coalesce(b.ids, []) as barrier_ids, coalesce(b.to_book, []) as to_book,
           coalesce(l.ids, []) as ledger_ids, coalesce(b.effects, []) as effects, coalesce(l.effects, []) as bookings
    from named
    left join (select *, nullif(state, 0) as known_state from journal) m on m.gid = named.gid
    left join expected e on e.gid = named.gid
    left join verdicts v on v.gid = named.gid
    left join barriers b on b.gid = named.gid
    left join booked l on l.gid = named.gid
),
said as (
    select *, state in (3, 4) as delivered, state = 5 as failed, state in (2, 3) as live,
           not committed and not rolled_back and given as absent,
           len(barrier_ids) + len(ledger_ids) > 0 as has_effect,
           list_filter(barrier_ids, lambda x: not list_contains(queues, x)) as called,
           list_filter(bookings, lambda x: not list_contains(queues, split_part(x, '/', 2))) as booked,
           state in (3, 4) and not waits and len(list_filter(queued, lambda x: not list_contains(entries, x))) > 0 as unappended
    from facts
),
judged as (
    select
        (committed and (not known or (failed and decided_by <> 'operator')))
            or (coalesce(unappended, false) and not entries_cleaned) as lost,
        (known and checked and ((rolled_back and not committed) or absent) and (delivered or has_effect))
            or (not known and rolled_back and not committed and has_effect)
            or (failed and decided_by <> 'operator' and not committed and has_effect)
            or (len(entries) > 0 and (not known or state = 2 or (failed and decided_by <> 'operator'))) as ghost,
        len(booked) > len(list_distinct(booked)) or len(called) > len(list_distinct(called))
            or len(entries) > len(list_distinct(entries))
            as duplicate_effect,
        (state = 4 and len(list_filter(due, lambda x: not list_contains(barrier_ids, x) and not list_contains(ledger_ids, x))) > 0)
            or len(list_filter(to_book, lambda x: not list_contains(bookings, 'bank-b/' || x) and not list_contains(queues, x))) > 0 as missing_effect,
        (not known and has_effect)
            or (known and not topic and len(list_filter(barrier_ids, lambda x: not list_contains(calls, x))) > 0)
            or (known and len(list_filter(entries, lambda x: not list_contains(queued, x))) > 0) as orphan,
        (committed and failed and decided_by <> 'operator')
            or (rolled_back and not committed and checked and delivered)
            or (absent and checked and failed and decided_by = 'check-back') as contrary_verdict,
        len(list_filter(bookings, lambda x: not list_contains(effects, x)
            and not list_contains(queues, split_part(x, '/', 2)))) > 0 as unguarded_effect,
        committed and failed and decided_by = 'operator' as stopped,
        live and parked as parked,
        live and not parked and old as late,
        live and not parked and not old as in_flight,
        (checked and state in (3, 4, 5) and not committed and not rolled_back and not given)
            or (state = 4 and len(due) < branch_count) or (bare and state in (2, 3, 4)) or unreadable
            or (unappended and entries_cleaned) as unchecked
    from said
)
select count(*) as messages,
       count(*) filter (where lost) as lost, count(*) filter (where ghost) as ghost,
       count(*) filter (where duplicate_effect) as duplicate_effect,
       count(*) filter (where missing_effect) as missing_effect,
       0 as differing_effect, -- these tables have no payloads
       count(*) filter (where orphan) as orphan,
       count(*) filter (where contrary_verdict) as contrary_verdict,
       count(*) filter (where unguarded_effect) as unguarded_effect, count(*) filter (where stopped) as stopped,
       count(*) filter (where parked) as parked, count(*) filter (where late) as late,
       count(*) filter (where in_flight) as in_flight,
       0 as left_out, -- nor a condition on the ledger's rows
       count(*) filter (where unchecked) as unchecked
from judged
