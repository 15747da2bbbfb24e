"""The independent checker: reads the databases and what the clients saw acknowledged, and nothing else.

It shares no code with twophase: plain SQL, its own numbers for states, its own idea of the promises.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

PREPARED, SUBMITTED, SUCCEEDED, FAILED = 2, 3, 4, 5
Rows = Sequence[tuple[Any, ...]]


def rows(database: str, statement: str) -> Rows:
    """The rows of a statement, from `sqlite:///file` or `postgresql+psycopg://…`."""
    if database.startswith("sqlite:///"):
        with closing(sqlite3.connect(f"file:{database.removeprefix('sqlite:///')}?mode=ro", uri=True)) as connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        return connection.execute(statement).fetchall()


@dataclass(frozen=True)
class Acknowledged:
    """What one customer of bank A was told. `outcome` empty: no answer came."""

    transfer_id: str
    gid: str
    outcome: str


@dataclass
class Findings:
    """Violated promises, as sentences; empty when all were kept."""

    violations: list[str] = field(default_factory=list)

    def expect(self, holds: bool, sentence: str) -> None:
        """Note a violation unless it holds."""
        if not holds:
            self.violations.append(sentence)

    def none(self, what: Iterable[object], sentence: str) -> None:
        """Note a violation when there are any of `what`."""
        found = sorted(map(str, what))
        self.expect(not found, f"{len(found)} {sentence}: {found[:5]}")


def live(coordinator: Path) -> Rows:
    """(gid, state, parked, due_ms) of every unfinished message."""
    return rows(f"sqlite:///{coordinator}", "select gid, state, parked, due_ms from message")


def check(*, coordinator: Path, bank_a: str, bank_b: str, total: int, acknowledged: Sequence[Acknowledged]) -> Findings:
    """Assert every promise over databases that have come to rest.

    Arguments:
        coordinator: its SQLite file.
        bank_a, bank_b: URLs of the banks' databases.
        total: the money in both banks together at the start.
        acknowledged: what customers were told.
    """
    found = Findings()
    out: dict[str, int] = dict(rows(bank_a, "select gid, amount from transfer_out"))
    transfers: dict[str, str] = dict(rows(bank_a, "select transfer_id, gid from transfer_out"))
    effects = rows(bank_b, "select gid, branch_id, amount from ledger")
    history: dict[str, int] = dict(rows(f"sqlite:///{coordinator}", "select gid, state from history"))
    producer: dict[str, str] = dict(
        rows(bank_a, "select gid, reason from barrier where branch_id = '00' and op = 'msg' and barrier_id = '01'")
    )
    consumer = {row[0] for row in rows(bank_b, "select gid from barrier where op = 'action'")}
    credited = {gid: amount for gid, _, amount in effects}

    balance = sum(rows(bank_a, "select balance from account")[0]) + sum(rows(bank_b, "select balance from account")[0])
    found.expect(balance == total, f"money is not conserved: {balance} instead of {total}")

    _check_messages(found, coordinator, history)
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

    for told in acknowledged:
        is_out = told.transfer_id in transfers
        if told.outcome == "committed":
            found.expect(is_out, f"{told.transfer_id} was acknowledged as committed, and is gone")
        elif told.outcome in {"rolled_back", "not_started"}:
            found.expect(not is_out, f"{told.transfer_id} was reported {told.outcome}, and is committed")
    return found


def _check_messages(found: Findings, coordinator: Path, history: dict[str, int]) -> None:
    unfinished = live(coordinator)
    found.none([row[0] for row in unfinished if row[0] in history], "gids are both live and in history")
    found.none([row[0] for row in unfinished], "messages are neither final nor did they become so in time")
    found.none([gid for gid, state in history.items() if state not in {SUCCEEDED, FAILED}], "history rows not final")
    sequence = [row[0] for row in rows(f"sqlite:///{coordinator}", "select seq from history order by seq")]
    found.expect(len(set(sequence)) == len(sequence), "two history rows share a sequence number")
