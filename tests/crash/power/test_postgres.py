"""An acknowledged commit of PostgreSQL is on the disk, whatever a block has set."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.crash.power.bank import Bank
from tests.crash.power.servers import PowerlessPostgres
from tests.servers.plugin import running
from tests.support.items import plain
from twophase.core.errors import BarrierTableUnusable
from twophase.stores.batch import Batch
from twophase.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.crash, pytest.mark.postgres]

STORED = "stored"
SLOW_TO_SYNC = {"wal_writer_delay": "10s", "checkpoint_timeout": "1h", "autovacuum": "off"}
"""Nothing syncs by chance what a commit left unsynced."""


@pytest.fixture(scope="module")
def server() -> Iterator[PowerlessPostgres]:
    with running(PowerlessPostgres(settings=SLOW_TO_SYNC)) as one:
        yield one


def test_a_transaction_that_wants_no_sync_is_on_the_disk_before_its_submit(server: PowerlessPostgres) -> None:
    bank = Bank(server, server.create_database("bank").sqlalchemy_url("psycopg"))

    bank.transfer("set local synchronous_commit = off")

    assert bank.found() == (70, 1)


def test_a_barrier_that_a_crash_empties_is_refused(server: PowerlessPostgres) -> None:
    bank = Bank(server, server.create_database("unlogged").sqlalchemy_url("psycopg"))
    with bank.engine.begin() as connection:
        connection.execute(text("alter table barrier set unlogged"))

    with pytest.raises(BarrierTableUnusable):
        bank.transfer()

    assert bank.found() == (100, 0)


def test_an_acknowledged_message_is_on_the_coordinator_s_disk(server: PowerlessPostgres) -> None:
    async def live() -> bool:
        store = PostgresStore(server.create_database("coordinator").dsn)
        await store.start()
        result = await store.flush(Batch([plain(STORED)], []))
        assert not result.refused
        await asyncio.to_thread(server.lose_power)
        found = await store.get(STORED)
        await store.stop()
        return found is not None

    assert asyncio.run(live())
