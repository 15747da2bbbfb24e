"""Refusals by scope are counted, and a flood of them is a few rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twophase.core.audit_log import AuditEntry
from twophase.core.errors import Forbidden, StoreUnavailable, Unauthenticated
from twophase.server.identity.caller import Caller, unknown
from twophase.server.identity.refusals import KINDS_MAX, Refusals
from twophase.server.identity.scopes import Scope

OPERATE = frozenset({Scope.OPERATE})


class Log:
    """Rows that were written; it may fail."""

    def __init__(self) -> None:
        self.rows: list[AuditEntry] = []
        self.writes = 0
        self.fails = False

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        self.writes += 1
        if self.fails:
            raise StoreUnavailable
        self.rows += entries


async def test_a_flood_is_one_row_with_its_count_and_writes_nothing_meanwhile() -> None:
    log = Log()
    refusals = Refusals(log.write)
    for at in range(10_000):
        refusals.note("shop", OPERATE, "/stop", f"192.0.2.{at}")
    assert log.writes == 0
    await refusals.flush()
    await refusals.flush()
    assert log.rows == [
        AuditEntry("shop", "192.0.2.0", "refused", "/stop", "the scope operate is needed; refused 10000 times")
    ]
    assert log.writes == 1


async def test_kinds_beyond_the_bound_share_one_row() -> None:
    log = Log()
    refusals = Refusals(log.write)
    for at in range(3 * KINDS_MAX):
        refusals.note(f"shop-{at}", OPERATE, "/stop", "")
    await refusals.flush()
    assert len(log.rows) == KINDS_MAX + 1
    assert log.rows[-1].target == "other routes"
    assert log.rows[-1].reason.endswith(f"refused {2 * KINDS_MAX} times")


async def test_what_cannot_be_written_is_kept_within_a_bound() -> None:
    log = Log()
    refusals = Refusals(log.write)
    log.fails = True
    for _ in range(20):
        for at in range(KINDS_MAX):
            refusals.note(f"shop-{at}", OPERATE, "/stop", "")
        await refusals.flush()
    log.fails = False
    await refusals.stop()
    assert len(log.rows) == 4 * KINDS_MAX


async def test_a_caller_notes_its_refusals_and_nothing_else() -> None:
    log = Log()
    refusals = Refusals(log.write)
    shop = Caller("shop", frozenset({Scope.PRODUCE}), refusals=refusals)
    shop.require(frozenset({Scope.PRODUCE}), "/prepare")
    with pytest.raises(Forbidden):
        shop.require(OPERATE, "/stop", "192.0.2.7")
    with pytest.raises(Unauthenticated):
        unknown(refusals).require(OPERATE, "/stop", "192.0.2.8")
    await refusals.flush()
    assert [(row.who, row.peer, row.target) for row in log.rows] == [
        ("shop", "192.0.2.7", "/stop"),
        ("", "192.0.2.8", "/stop"),
    ]
