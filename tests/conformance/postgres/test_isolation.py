"""A flush is right under READ COMMITTED only (correctness 18, 19).

It uses that, whatever isolation the database has by default.
"""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.conformance.postgres.conftest import Join, somebody_waits_for
from tests.conformance.postgres.test_one_gid import END
from tests.servers.database import Database
from tests.support.items import final, flush, prepare
from twophase.core.errors import ConfigurationError
from twophase.stores.postgres import PostgresStore, connection


@pytest.fixture
def repeatable(postgres_database: Database) -> Database:
    """A database whose transactions see one snapshot from end to end.

    That is its default.
    """
    with psycopg.connect(postgres_database.dsn, autocommit=True) as raw:
        raw.execute(
            f"alter database {postgres_database.name} set default_transaction_isolation = 'repeatable read'".encode()
        )
    return postgres_database


async def test_a_gid_that_ends_while_it_comes_again_has_no_second_life(repeatable: Database, join: Join) -> None:
    store = await join(url=repeatable.dsn)
    await flush(store, prepare("g", body=b"first"))
    with psycopg.connect(repeatable.dsn, autocommit=True) as raw:
        with raw.transaction():
            raw.execute(END, ("g",))
            again = asyncio.create_task(flush(store, prepare("g", body=b"second")))
            await somebody_waits_for(raw)
        result = await again

        assert result.refused == {0: await final(store, "g")}
        assert raw.execute("select count(*) from message").fetchone() == (0,)


async def test_a_session_that_does_not_take_it_is_refused(
    repeatable: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a pooler, which takes no settings, the database's default must be right."""
    monkeypatch.setattr(connection, "_SETTINGS", {})

    with pytest.raises(ConfigurationError, match=r"repeatable read.*alter database") as caught:
        await PostgresStore(repeatable.dsn).start()

    assert repeatable.password not in str(caught.value)
