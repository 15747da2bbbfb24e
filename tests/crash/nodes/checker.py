"""The independent checker for several nodes.

It compares the store's tables with the ledger, by plain SQL and no other code. It shares the findings and the numbers
of states with `tests.crash.checker`, and nothing with twophase.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.checker import Findings, check_store, rows
from tests.crash.classes import FAILED, SUCCEEDED, Seen
from tests.crash.nodes.ledger import Fate, Ledger, Record

_STATES = {Fate.COMMITTED: SUCCEEDED, Fate.ROLLED_BACK: FAILED}


def check_nodes(dsn: str, ledger: Ledger) -> Findings:
    """Assert every promise over a store at rest.

    Arguments:
        dsn: the store's database.
        ledger: the producers' decisions, the answers to them, and the calls.
    """
    found = Findings()
    # Before history: a message that ends in between stands in both, and does not count as lost.
    unfinished = rows(dsn, "select gid, state, decided_by from message")
    ended = rows(dsn, "select gid, state, decided_by from history")
    history: dict[str, int] = {gid: state for gid, state, _ in ended}
    # After history, and in one step, as the load may still be running; a list of the items would be made one by one.
    records = ledger.records.copy()
    check_store(found, dsn)
    left = "select gid, state, parked, version, node, epoch, to_timestamp(due_ms / 1000.0)::text from message"
    if stuck := rows(dsn, left):
        places = rows(dsn, "select id, epoch, fence, owner <> '' from node order by id")
        found.none([f"{stuck[:5]} at places {places}"], "places hold messages that nobody sees to")
    found.none(ledger.wrong, "promises were broken in plain sight")
    found.none(history.keys() - records.keys(), "messages were never sent by anybody")
    lost: dict[str, str] = {}
    contrary: dict[str, str] = {}
    ghosts, undecided = [], []
    for gid, record in records.items():
        state = history.get(gid)
        if state is None:
            if record.acknowledged:
                lost[gid] = gid
            elif record.plain or record.verdict is None:
                found.unheard.add(gid)
            continue
        if record.fate not in _STATES:
            undecided.append(gid)
        elif state != _STATES[record.fate]:
            contrary[gid] = f"{gid} is {record.fate.value}, and {state} in history"
        if state == SUCCEEDED and not all(calls > 0 for calls in record.calls):
            lost[gid] = f"{gid} is said to be delivered"
        if record.fate is not Fate.COMMITTED and any(record.calls):
            ghosts.append(gid)
    found.none(lost.values(), "messages were acknowledged, and are gone or were never delivered (lost)")
    found.none(ghosts, "messages were delivered, and not committed (ghost)")
    found.none(contrary.values(), "messages ended otherwise than their transaction")
    found.none(undecided, "messages were decided, and their producers know of no end")
    found.none([row[0] for row in rows(dsn, "select what from witness_violation")], "things the witness saw")
    incidents = rows(dsn, "select gid, error from attempt where kind = 'incident'")
    found.none(incidents, "contrary decisions arrived, though every producer was honest")
    known = {gid: (state, by) for gid, state, by in (*unfinished, *ended)}
    found.unheard -= known.keys()
    found.none([gid for gid in found.unheard if records[gid].done], "messages were called, and no table knows them")
    found.classify(_seen(known, records), len(unfinished))
    broken = {*lost, *ghosts, *contrary} - {gid for gid, *_ in unfinished}
    found.expect_classes(gid for gid in broken if records[gid].verdict == "msg" or records[gid].done)
    return found


def _seen(known: dict[str, tuple[int, str]], records: dict[str, Record]) -> Iterator[tuple[str, Seen]]:
    """Yield every side's view of each known message.

    A producer that never began and was never called knows none.
    """
    for gid in known.keys() | {gid for gid, record in records.items() if record.verdict or record.done}:
        record = records.get(gid) or Record(0, plain=True)
        state, decided_by = known.get(gid, (None, ""))
        branches = frozenset(f"{branch:02}" for branch in range(1, record.branches + 1))
        yield gid, Seen(state, decided_by, record.verdict, not record.plain, branches, frozenset(record.done))
