"""The next process of one that has ended has its rows at once.

What the former one had begun is not written.
"""

from __future__ import annotations

import pytest

from tests.servers.database import Database
from twophase.core.errors import StoreFenced
from twophase.core.lifecycle import State
from twophase.stores.batch import Batch, Insert
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.rows import LiveRow, Secrets

pytestmark = pytest.mark.postgres
_LEASE_MS = 600_000


def _store(database: Database, own: str, *former: str) -> PostgresStore:
    return PostgresStore(database.dsn, lease_ms=_LEASE_MS, secrets=Secrets(own, former))


async def test_the_rows_of_a_former_process_need_no_lease(postgres_database: Database) -> None:
    ended, other = _store(postgres_database, "ended"), _store(postgres_database, "other")
    await ended.start()
    await other.start()
    await ended.flush(Batch([Insert("g", State.PREPARED, 0, b"x")], []))

    # `ended` has not given its slot back, and the one after it was killed before it did.
    next_ = _store(postgres_database, "next", "ended", "killed while it started")
    await next_.start()
    try:
        assert next_.slot == ended.slot
        row = await next_.get("g")
        assert isinstance(row, LiveRow)
        assert row.owned
        with pytest.raises(StoreFenced):
            await ended.flush(Batch([Insert("late", State.PREPARED, 0, b"x")], []))
        assert await next_.get("late") is None
        await other.flush(Batch([Insert("others", State.PREPARED, 0, b"x")], []))
    finally:
        for store in (next_, other, ended):
            await store.stop()


async def test_only_former_processes_are_put_out(postgres_database: Database) -> None:
    holds = _store(postgres_database, "holds")
    await holds.start()
    next_ = _store(postgres_database, "next", "another")
    await next_.start()
    try:
        assert next_.slot[0] != holds.slot[0]
        await holds.flush(Batch([Insert("g", State.PREPARED, 0, b"x")], []))
    finally:
        await next_.stop()
        await holds.stop()
