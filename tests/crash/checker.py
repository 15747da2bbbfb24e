"""The independent checker of the databases and the clients' acknowledgements.

It reads nothing else, and shares no code with twophase: plain SQL, its own numbers for states, its own idea of the
promises.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.crash.classes import FAILED, SUCCEEDED, Seen

Rows = Sequence[tuple[Any, ...]]


def rows(database: str, statement: str) -> Rows:
    """Return a statement's rows, from `sqlite:///file` or `postgresql+psycopg://…`."""
    if database.startswith("sqlite:///"):
        with closing(sqlite3.connect(f"file:{database.removeprefix('sqlite:///')}?mode=ro", uri=True)) as connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        return connection.execute(statement).fetchall()


@dataclass(frozen=True)
class Acknowledged:
    """The answer to one customer of bank A. `outcome` empty: no answer came."""

    transfer_id: str
    gid: str
    outcome: str


@dataclass
class Findings:
    """Violated promises, as sentences; empty when all were kept.

    `messages`: the number of messages that any database knows; `unfinished`: the number that the coordinator has not
    ended; `classes`: by gid, the classes that an audit of the same databases must name; `unheard`: gids that were sent
    in vain, so that no database knows them.
    """

    violations: list[str] = field(default_factory=list)
    messages: int = 0
    unfinished: int = 0
    classes: dict[str, frozenset[str]] = field(default_factory=dict)
    unheard: set[str] = field(default_factory=set)

    def expect(self, holds: bool, sentence: str) -> None:
        """Note a violation unless it holds."""
        if not holds:
            self.violations.append(sentence)

    def none(self, what: Iterable[object], sentence: str) -> None:
        """Note a violation when there are any of `what`."""
        found = sorted(map(str, what))
        self.expect(not found, f"{len(found)} {sentence}: {found[:5]}")

    def classify(self, seen: Iterable[tuple[str, Seen]], unfinished: int) -> None:
        """Note the classes of each gid that any side knows, as (gid, what was seen of it)."""
        self.unfinished = unfinished
        for gid, one in seen:
            self.messages += 1
            if classes := one.classes():
                self.classes[gid] = classes
        broken = [f"{gid} is {', '.join(sorted(classes))}" for gid, classes in self.classes.items()]
        self.none(broken, "messages of which the sides say different things")

    def expect_classes(self, broken: Iterable[str]) -> None:
        """Check that every message that was found broken is in some class.

        Only those count of which a database still knows enough.
        """
        self.none((gid for gid in broken if gid not in self.classes), "messages are broken, and in no class")


def live(coordinator: str) -> Rows:
    """Return (gid, state, parked, due_ms) of every unfinished message."""
    return rows(coordinator, "select gid, state, parked, due_ms from message")


def check(*, coordinator: str, bank_a: str, bank_b: str, total: int, acknowledged: Sequence[Acknowledged]) -> Findings:
    """Assert every promise over databases at rest.

    Arguments:
        coordinator: URL of its store.
        bank_a, bank_b: URLs of the banks' databases.
        total: the money in both banks together at the start.
        acknowledged: the answers to customers.
    """
    found = Findings()
    out: dict[str, int] = dict(rows(bank_a, "select gid, amount from transfer_out"))
    transfers: dict[str, str] = dict(rows(bank_a, "select transfer_id, gid from transfer_out"))
    effects = rows(bank_b, "select gid, branch_id, amount from ledger")
    history: dict[str, int] = dict(rows(coordinator, "select gid, state from history"))
    producer: dict[str, str] = dict(
        rows(bank_a, "select gid, reason from barrier where branch_id = '00' and op = 'msg' and barrier_id = '01'")
    )
    consumer = {row[0] for row in rows(bank_b, "select gid from barrier where op = 'action'")}
    credited = {gid: amount for gid, _, amount in effects}

    balance = sum(rows(bank_a, "select balance from account")[0]) + sum(rows(bank_b, "select balance from account")[0])
    found.expect(balance == total, f"money is not conserved: {balance} instead of {total}")

    check_store(found, coordinator)
    found.none(out.keys() - credited.keys(), "committed transfers were never delivered (lost)")
    found.none(credited.keys() - out.keys(), "effects have no committed transfer (ghost)")
    twice = [key for key, count in Counter((gid, branch) for gid, branch, _ in effects).items() if count > 1]
    found.none(twice, "branches took effect more than once (duplicate)")
    found.none([gid for gid in out if gid in credited and out[gid] != credited[gid]], "amounts differ")
    found.none(credited.keys() ^ consumer, "effects and branch barrier rows do not match")

    committed = {gid for gid, reason in producer.items() if reason == "msg"}
    barred = {gid for gid, reason in producer.items() if reason == "rollback"}
    found.none(committed ^ out.keys(), "barrier rows and business rows of bank A do not match")
    found.none([gid for gid in committed if history.get(gid) != SUCCEEDED], "committed messages did not succeed")
    found.none([gid for gid in barred if history.get(gid, FAILED) != FAILED], "barred messages did not fail")

    found.classify(*_sides(coordinator, bank_a, bank_b))
    at_rest = (out.keys() ^ credited.keys()) - {row[0] for row in live(coordinator)}
    found.expect_classes([gid for gid in at_rest if gid in committed or gid in credited] + [gid for gid, _ in twice])
    for told in acknowledged:
        is_out = told.transfer_id in transfers
        if told.outcome == "committed":
            found.expect(is_out, f"{told.transfer_id} was acknowledged as committed, and is gone")
        elif told.outcome in {"rolled_back", "not_started"}:
            found.expect(not is_out, f"{told.transfer_id} was reported {told.outcome}, and is committed")
    return found


def _sides(coordinator: str, bank_a: str, bank_b: str) -> tuple[list[tuple[str, Seen]], int]:
    """Return every side's view of each known gid.

    Returns the number of unfinished messages, too.
    """
    unfinished = rows(coordinator, "select gid, state, decided_by from message")
    ended = rows(coordinator, "select gid, state, decided_by from history")
    known = {gid: (state, by) for gid, state, by in (*unfinished, *ended)}
    verdicts: dict[str, str] = dict(rows(bank_a, "select gid, reason from barrier where op = 'msg'"))
    barrier, booked = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    for gid, branch in rows(bank_b, "select gid, branch_id from barrier where op = 'action'"):
        barrier[gid].add(branch)
    for gid, branch in rows(bank_b, "select gid, branch_id from ledger"):
        booked[gid].append(branch)
    seen = [
        (
            gid,
            Seen(
                *known.get(gid, (None, "")),
                verdicts.get(gid),
                asked=True,
                branches=frozenset({"01"}),
                barrier=frozenset(barrier[gid]),
                booked=tuple(booked[gid]),
            ),
        )
        for gid in known.keys() | verdicts.keys() | barrier.keys() | booked.keys()
    ]
    return seen, len(unfinished)


def check_store(found: Findings, coordinator: str) -> None:
    """Check the rules for any store at rest.

    All messages are final, once, and numbered without a gap in the order of commits.
    """
    both = "select message.gid from message join history on history.gid = message.gid"
    found.none([row[0] for row in rows(coordinator, both)], "gids are both live and in history")
    unfinished = [row[0] for row in live(coordinator)]
    found.none(unfinished, "messages are neither final nor did they become so in time")
    repeated = "select gid from history group by gid having count(*) > 1"
    found.none([row[0] for row in rows(coordinator, repeated)], "gids stand in history more than once")
    undecided = f"select gid from history where state not in ({SUCCEEDED}, {FAILED})"
    found.none([row[0] for row in rows(coordinator, undecided)], "history rows are not final")
    last: dict[int, tuple[int, int]] = {}
    for node, seq, at_ms in rows(coordinator, "select node, seq, finished_ms from history order by node, seq"):
        before, before_ms = last.get(node, (0, 0))
        found.expect(seq == before + 1, f"node {node}: number {seq} follows {before} in history")
        found.expect(at_ms >= before_ms, f"node {node}: number {seq} was finished before {before}")
        last[node] = (seq, at_ms)
    counted = {node: seq for node, seq in rows(coordinator, "select id, seq from node") if seq}
    found.expect(counted == {node: seq for node, (seq, _) in last.items()}, f"nodes count {counted}, history {last}")
