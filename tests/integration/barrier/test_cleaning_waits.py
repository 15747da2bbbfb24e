"""The messages for which the cleaning of a receiver's rows waits.

The tests go from the store's rows to the barrier's (I10, rule 16).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.barrier.test_cleaning import NOW_MS, clean_bank, gids, put_branch
from tests.support.business_databases import Bank
from tests.support.items import SetClock, flush, plain, prepare
from twophase.barrier.cleaning import DAY_MS, KEEP_MS
from twophase.coordinator.maintenance.horizon import oldest_unfinished_ms
from twophase.core.message import Branch, Message, encode
from twophase.core.options import Durability, Options
from twophase.stores.base import Store
from twophase.stores.batch import Reschedule
from twophase.stores.postgres import PostgresStore
from twophase.stores.sqlite import SqliteStore

BORN_MS = NOW_MS - KEEP_MS - 30 * DAY_MS
"""The birth of the coordinator's first message.

The rows that the receiver wrote the day after are old enough to be removed.
"""


@pytest.fixture
def clock() -> SetClock:
    return SetClock(BORN_MS)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> AsyncIterator[Store]:
    """A store of either kind; the receiver's database is SQLite with both."""
    store: Store
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "coordinator.db", clock=clock)
    else:
        store = PostgresStore(request.getfixturevalue("postgres_database").dsn, clock=clock)
    await store.start()
    yield store
    await store.stop()


async def clean_as_told(bank: Bank, store: Store, clock: SetClock) -> set[str]:
    clock.time_ms = NOW_MS
    clean_bank(bank, unfinished_ms=await oldest_unfinished_ms(store))
    return gids(bank)


async def test_a_message_for_next_year_does_not_hold_it_up(sqlite_bank: Bank, store: Store, clock: SetClock) -> None:
    year = Options(delay_ms=366 * DAY_MS)
    await flush(
        store,
        plain("far", due_in_ms=year.delay_ms, body=encode(Message("far", (Branch("http://b/in"),), "", year))),
        prepare("undecided", body=encode(Message("undecided", (Branch("http://b/in"),), "http://a/check"))),
    )
    put_branch(sqlite_bank, "finished", BORN_MS + DAY_MS)

    assert await clean_as_told(sqlite_bank, store, clock) == set()


@pytest.mark.parametrize("what", ["tried", "called early"])
async def test_a_message_that_has_been_called_does(sqlite_bank: Bank, store: Store, clock: SetClock, what: str) -> None:
    early = Options(durability=Durability.CHECK_BACK)
    if what == "tried":
        await flush(store, plain("g"))
        await flush(store, Reschedule("g", 1, NOW_MS + 60_000, attempts=3, done=1))
    else:
        await flush(store, prepare("g", body=encode(Message("g", (Branch("http://b/in"),), "http://a/check", early))))
    put_branch(sqlite_bank, "g", BORN_MS + DAY_MS)

    assert await clean_as_told(sqlite_bank, store, clock) == {"g"}
