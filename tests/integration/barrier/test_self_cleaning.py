"""A service that removes old barrier rows beside its work.

The tests show which rows it removes, how many at a time, and what it waits for.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.servers.ports import nobodys_port
from tests.integration.barrier.test_cleaning import NOW_MS, OLD_MS, gids, horizon, put, put_branch
from tests.support.business_databases import Bank
from twophase.barrier import bounded_cleaning
from twophase.barrier.cleaning import DAY_MS
from twophase.client.cleaner import BarrierCleaner
from twophase.client.horizons import Frozen
from twophase.core.errors import BarrierTableMissing, ConfigurationError
from twophase.testing import InProcessCoordinator

ASYNC_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "mysql": "asyncmy"}


@pytest.fixture(scope="module")
def coordinator() -> Iterator[InProcessCoordinator]:
    """A real coordinator without messages."""
    with InProcessCoordinator() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.client.cleaner._REST", 0)


def furnish(bank: Bank) -> None:
    put(bank, "old", OLD_MS)
    put(bank, "foreign", None)
    put_branch(bank, "branch", OLD_MS - 2 * DAY_MS)
    put(bank, "young", NOW_MS)


def test_what_every_coordinator_agrees_to_is_removed(bank: Bank, coordinator: InProcessCoordinator) -> None:
    furnish(bank)
    with bank.engine() as engine:
        cleaned = BarrierCleaner(engine, [coordinator.url]).clean_now()
    assert (cleaned.rows, gids(bank)) == (2, {"young", "foreign"})
    assert horizon(bank) is not None


async def test_an_async_engine_is_cleaned_alike(bank: Bank, coordinator: InProcessCoordinator) -> None:
    furnish(bank)
    engine = create_async_engine(bank.url(ASYNC_DRIVERS[bank.kind]), poolclass=NullPool)
    cleaned = await BarrierCleaner(engine, [coordinator.url]).aclean_now()
    assert (cleaned.rows, gids(bank)) == (2, {"young", "foreign"})


async def test_a_hint_in_an_event_loop_cleans_beside_it(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    furnish(sqlite_bank)
    engine = create_async_engine(sqlite_bank.url("aiosqlite"), poolclass=NullPool)
    cleaner = BarrierCleaner(engine, [coordinator.url])
    cleaner._next_s = 0.0
    cleaner.hint()
    assert gids(sqlite_bank) == {"old", "branch", "young", "foreign"}  # nothing has waited for it
    await asyncio.gather(*cleaner._tasks)
    assert gids(sqlite_bank) == {"young", "foreign"}


def test_a_coordinator_that_does_not_answer_keeps_everything(
    sqlite_bank: Bank, coordinator: InProcessCoordinator
) -> None:
    furnish(sqlite_bank)
    with sqlite_bank.engine() as engine, pytest.raises(Frozen):
        BarrierCleaner(engine, [coordinator.url, f"http://127.0.0.1:{nobodys_port()}"]).clean_now()
    assert gids(sqlite_bank) == {"old", "branch", "young", "foreign"}


def test_a_run_removes_a_bounded_number_of_rows(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    sqlite_bank.query(
        "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time)"
        " with recursive n(i) as (select 1 union all select i + 1 from n where i < 1200)"
        f" select 'msg', 'g' || i, '00', 'msg', '01', 'msg', 't', {OLD_MS}, '2000-01-01' from n"
    )
    with sqlite_bank.engine() as engine:
        cleaner = BarrierCleaner(engine, [coordinator.url])
        assert [cleaner.clean_now().rows for _ in range(4)] == [500, 500, 200, 0]


def test_rows_that_must_stay_do_not_hide_those_behind_them(
    sqlite_bank: Bank, coordinator: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_cleaning, "PAGE_ROWS", 2)
    for number in range(12):
        put(sqlite_bank, f"foreign{number}", None)
    put(sqlite_bank, "old", OLD_MS)
    with sqlite_bank.engine() as engine:
        cleaner = BarrierCleaner(engine, [coordinator.url])
        assert [cleaner.clean_now().rows for _ in range(2)] == [0, 1]


def test_a_database_without_a_barrier_says_so(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    sqlite_bank.query("drop table twophase_meta")
    with sqlite_bank.engine() as engine, pytest.raises(BarrierTableMissing):
        BarrierCleaner(engine, [coordinator.url]).clean_now()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"coordinators": []}, "name every coordinator"),
        ({"coordinators": "http://c:1"}, "as a list"),
        ({"coordinators": ["c:1"]}, "not an http:// or https:// address"),
        ({"coordinators": ["http://c:1"], "keep": dt.timedelta(hours=23)}, "the least is a day"),
    ],
)
def test_a_cleaner_that_could_not_be_safe_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        BarrierCleaner("default", **arguments)


def test_a_connection_with_work_of_its_own_is_refused(sqlite_bank: Bank) -> None:
    with sqlite_bank.plain() as connection, pytest.raises(ConfigurationError, match="engine"):
        BarrierCleaner(connection, ["http://c:1"])


def due(cleaner: BarrierCleaner, work: Callable[[], Any]) -> None:
    """Let the next hint start a cleaning, and run `work` in its place."""
    cleaner._next_s = 0.0
    cleaner.clean_now = work  # type: ignore[method-assign]


def test_a_hint_returns_at_once_and_cleans_once_a_minute() -> None:
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()
    runs: list[str] = []

    def work() -> bounded_cleaning.CleanedSome:
        runs.append(threading.current_thread().name)
        begun.set()
        assert released.wait(30)
        return bounded_cleaning.CleanedSome(7, -1)

    cleaner = BarrierCleaner("default", ["http://c:1"], ended=ended.set)
    due(cleaner, work)
    cleaner.hint()
    assert begun.wait(30)
    cleaner._next_s = 0.0
    cleaner.hint()  # while the first run is under way
    cleaner._next_s = time.monotonic() + 60
    released.set()
    assert ended.wait(30)
    cleaner.hint()  # within the minute
    assert runs == ["twophase barrier cleaning"]


def test_a_run_that_fails_is_logged_and_the_next_comes_later(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    def work() -> None:
        raise LookupError("secret")

    cleaner = BarrierCleaner("default", ["http://c:1"], ended=ended.set)
    due(cleaner, work)
    cleaner.hint()
    assert ended.wait(30)
    assert "no barrier rows are removed now: LookupError" in caplog.text
    assert "secret" not in caplog.text
    assert cleaner._next_s > time.monotonic() + 60


def test_a_thread_that_cannot_start_fails_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start_any = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "twophase barrier cleaning":
            raise RuntimeError("can't start new thread")
        start_any(thread)

    ended = threading.Event()
    cleaner = BarrierCleaner("default", ["http://c:1"], ended=ended.set)
    due(cleaner, lambda: bounded_cleaning.CleanedSome(0, -1))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        cleaner.hint()
    assert "no barrier rows are removed now: no thread or task can be started: can't start new thread" in caplog.text
    assert cleaner._next_s > time.monotonic() + 60
    cleaner._next_s = 0.0
    cleaner.hint()
    assert ended.wait(30)  # the hint that failed holds up no later one


def test_a_hint_without_the_event_loop_of_an_async_engine_fails_no_request(
    sqlite_bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    cleaner = BarrierCleaner(create_async_engine(sqlite_bank.url("aiosqlite"), poolclass=NullPool), ["http://c:1"])
    cleaner._next_s = 0.0
    cleaner.hint()
    assert "no thread or task can be started: no running event loop" in caplog.text
