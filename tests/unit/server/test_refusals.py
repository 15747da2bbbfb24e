"""The first refusal of its kind is a row at once, and a flood is a few rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from twophase.core.audit_log import AuditEntry
from twophase.core.errors import Forbidden, StoreUnavailable, Unauthenticated
from twophase.server.identity import refusals as module
from twophase.server.identity.caller import Caller, unknown
from twophase.server.identity.refusals import KINDS_MAX, Refusals
from twophase.server.identity.scopes import Scope

OPERATE = frozenset({Scope.OPERATE})
NEEDED = "the scope operate is needed"


class Log:
    """Rows that were written; it may fail, or wait."""

    def __init__(self) -> None:
        self.rows: list[AuditEntry] = []
        self.writes = 0
        self.fails = False
        self.open = asyncio.Event()
        self.open.set()
        self.begun = asyncio.Event()

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        self.writes += 1
        self.begun.set()
        await self.open.wait()
        if self.fails:
            raise StoreUnavailable
        self.rows += entries


@pytest.fixture
async def log() -> Log:
    return Log()


@pytest.fixture
async def refusals(log: Log) -> AsyncIterator[Refusals]:
    """Refusals of one minute, which the test ends."""
    one = Refusals(log.write, every_s=3_600)
    one.start()
    yield one
    await one.stop()


def _shop(refusals: Refusals) -> Caller:
    return Caller("shop", frozenset({Scope.PRODUCE}), refusals=refusals)


async def test_the_first_is_written_before_its_answer_and_the_others_are_counted(log: Log, refusals: Refusals) -> None:
    shop = _shop(refusals)
    with pytest.raises(Forbidden):
        shop.require(OPERATE, "/stop", "192.0.2.7")
    await shop.noted()
    first = AuditEntry("shop", "192.0.2.7", "refused", "/stop", NEEDED)
    assert log.rows == [first]
    for _ in range(10_000):
        with pytest.raises(Forbidden):
            shop.require(OPERATE, "/stop", "192.0.2.7")
        assert refusals.waits is None
    assert log.writes == 1
    await refusals.flush()
    await refusals.flush()
    counted = f"{NEEDED}; refused 10000 more times in this minute"
    assert log.rows == [first, AuditEntry("shop", "192.0.2.7", "refused", "/stop", counted)]
    assert log.writes == 2


async def test_no_answer_overtakes_the_first_row_of_its_kind(log: Log, refusals: Refusals) -> None:
    log.open.clear()
    shop = _shop(refusals)
    answered: list[str] = []
    refusals.note("shop", OPERATE, "/stop", "192.0.2.7")
    shop.when_noted(lambda: answered.append("first"))
    await log.begun.wait()
    refusals.note("shop", OPERATE, "/stop", "192.0.2.7")
    shop.when_noted(lambda: answered.append("the same again"))
    refusals.note("shop", OPERATE, "/park", "192.0.2.7")
    shop.when_noted(lambda: answered.append("of the next commit"))
    assert answered == []
    log.open.set()
    await shop.noted()
    await asyncio.sleep(0)
    assert answered == ["first", "the same again", "of the next commit"]
    assert [row.target for row in log.rows] == ["/stop", "/park"]
    shop.when_noted(lambda: answered.append("at once"))
    assert answered[-1] == "at once"


async def test_one_commit_writes_all_that_came_during_the_one_before(log: Log, refusals: Refusals) -> None:
    log.open.clear()
    refusals.note("shop", OPERATE, "/stop", "192.0.2.7")
    await log.begun.wait()
    for at in range(50):
        refusals.note(f"shop-{at}", OPERATE, "/stop", "192.0.2.7")
    log.open.set()
    await _shop(refusals).noted()
    assert (len(log.rows), log.writes) == (51, 2)


async def test_a_store_that_does_not_answer_keeps_no_refusal_back(
    log: Log, refusals: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S_MAX", 0.01)
    log.open.clear()
    refusals.note("shop", OPERATE, "/stop", "192.0.2.7")
    await asyncio.wait_for(_shop(refusals).noted(), 30)
    assert log.rows == []
    log.open.set()


async def test_kinds_beyond_the_bound_differ_no_more_by_their_address_and_then_not_at_all(
    log: Log, refusals: Refusals
) -> None:
    for at in range(2 * KINDS_MAX):
        refusals.note("", OPERATE, "/stop", f"192.0.2.{at}")
    refusals.note("shop", OPERATE, "/stop", "198.51.100.1")
    for at in range(2 * KINDS_MAX):
        refusals.note(f"shop-{at}", OPERATE, "/stop", "")
    await _shop(refusals).noted()
    assert len(log.rows) == 2 * KINDS_MAX + 1
    assert [(row.who, row.peer) for row in log.rows[KINDS_MAX : KINDS_MAX + 2]] == [("", ""), ("shop", "")]
    assert log.rows[-1].target == "other routes"
    await refusals.flush()
    counted = [(row.target, row.reason) for row in log.rows[2 * KINDS_MAX + 1 :]]
    assert counted == [
        ("/stop", f"{NEEDED}; refused {KINDS_MAX - 1} more times in this minute"),
        ("other routes", f"the scope of another route is needed; refused {KINDS_MAX + 1} more times in this minute"),
    ]


async def test_what_cannot_be_written_is_kept_within_a_bound(log: Log) -> None:
    refusals = Refusals(log.write)
    log.fails = True
    for _ in range(20):
        for at in range(KINDS_MAX):
            refusals.note(f"shop-{at}", OPERATE, "/stop", "")
        await refusals.flush()
    log.fails = False
    await refusals.stop()
    assert len(log.rows) == 1_024


async def test_a_caller_notes_its_refusals_and_nothing_else(log: Log, refusals: Refusals) -> None:
    shop = _shop(refusals)
    shop.require(frozenset({Scope.PRODUCE}), "/prepare")
    with pytest.raises(Forbidden):
        shop.require(OPERATE, "/stop", "192.0.2.7")
    with pytest.raises(Unauthenticated):
        unknown(refusals).require(OPERATE, "/stop", "192.0.2.8")
    await shop.noted()
    assert [(row.who, row.peer, row.target) for row in log.rows] == [
        ("shop", "192.0.2.7", "/stop"),
        ("", "192.0.2.8", "/stop"),
    ]
