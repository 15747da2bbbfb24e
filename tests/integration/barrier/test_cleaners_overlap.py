"""Two cleanings at once.

One that was suspended removes only the rows that it may, whatever happened meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.barrier.test_cleaning import (
    NOW_MS,
    OLD_MS,
    TIMES,
    clean_bank,
    gids,
)
from tests.support.business_databases import Bank
from twophase.barrier import install
from twophase.barrier.branch import once
from twophase.barrier.cleaning import DELETED_AT_ONCE, Cleaned

OLD_ROWS = 250
"""Number of old rows: more than one batch."""


class Suspended:
    """`time` for a cleaner, whose first pause lasts as long as `meanwhile` takes."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile: Callable[[], None] | None = meanwhile

    def sleep(self, _seconds: float) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()


def put_many(bank: Bank, kind: str, prefix: str, at_ms: int) -> None:
    """Insert rows with the ids from 1 on, of producers or of branches, all of one age."""
    written = TIMES[bank.kind].format(at_ms)
    branch_id, op, prepared = ("00", "msg", str(at_ms)) if kind == "producer" else ("01", "action", "null")
    rows = ", ".join(
        f"({id_}, 'msg', '{prefix}{id_}', '{branch_id}', '{op}', '01', '{op}', 't', {prepared}, {written})"
        for id_ in range(1, OLD_ROWS + 1)
    )
    columns = "id, trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time"
    bank.query(f"insert into barrier ({columns}) values {rows}")


@pytest.mark.parametrize("today", ["producer", "branch"])
@pytest.mark.parametrize("old", ["producer", "branch"])
def test_a_suspended_cleaner_removes_nothing_that_took_an_old_rows_id(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, old: str, today: str
) -> None:
    put_many(bank, old, "old", OLD_MS)

    def meanwhile() -> None:
        monkeypatch.setattr("twophase.barrier.cleaning._PAUSE", 0)
        clean_bank(bank)
        assert gids(bank) == set()
        put_many(bank, today, "new", NOW_MS)

    monkeypatch.setattr("twophase.barrier.cleaning.time", Suspended(meanwhile))
    clean_bank(bank)

    assert gids(bank) == {f"new{id_}" for id_ in range(1, OLD_ROWS + 1)}
    ran: list[Any] = []
    if today == "branch":
        with bank.engine() as engine:
            call = {"gid": f"new{OLD_ROWS}", "branch_id": "01", "op": "action", "trans_type": "msg"}
            once(engine, call, ran.append)
    assert ran == []


@pytest.mark.parametrize("kind", ["producer", "branch"])
def test_a_suspended_cleaner_counts_only_what_it_removed_itself(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put_many(bank, kind, "old", OLD_MS)
    others: list[Cleaned] = []

    def meanwhile() -> None:
        monkeypatch.setattr("twophase.barrier.cleaning._PAUSE", 0)
        others.append(clean_bank(bank))

    monkeypatch.setattr("twophase.barrier.cleaning.time", Suspended(meanwhile))
    cleaned = [clean_bank(bank), *others]

    assert [one.producer_rows + one.branch_rows for one in cleaned] == [DELETED_AT_ONCE, OLD_ROWS - DELETED_AT_ONCE]
    assert [one.held for one in cleaned] == [0, 0]


def test_a_suspended_cleaner_leaves_an_old_row_of_another_message_that_took_an_id(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next cleaning removes that row; this one never read it."""
    put_many(bank, "producer", "old", OLD_MS)

    def meanwhile() -> None:
        bank.query("delete from barrier")
        put_many(bank, "producer", "other", OLD_MS)

    monkeypatch.setattr("twophase.barrier.cleaning.time", Suspended(meanwhile))
    clean_bank(bank)

    assert len(gids(bank)) == OLD_ROWS


@pytest.mark.parametrize("kind", ["producer", "branch"])
def test_a_suspended_cleaner_leaves_a_young_row_of_the_same_message(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put_many(bank, kind, "same", OLD_MS)

    def meanwhile() -> None:
        bank.query("delete from barrier")
        put_many(bank, kind, "same", NOW_MS)

    monkeypatch.setattr("twophase.barrier.cleaning.time", Suspended(meanwhile))
    clean_bank(bank)

    assert len(gids(bank)) == OLD_ROWS


def test_sqlite_gives_no_id_a_second_time(sqlite_bank: Bank) -> None:
    with sqlite_bank.engine() as engine:
        install(engine)
    put_many(sqlite_bank, "producer", "old", OLD_MS)
    greatest = sqlite_bank.query("select max(id) from barrier")[0][0]
    sqlite_bank.query("delete from barrier")
    sqlite_bank.query("insert into barrier (gid, branch_id, op, barrier_id) values ('next', '00', 'msg', '01')")
    assert sqlite_bank.query("select id from barrier")[0][0] > greatest
