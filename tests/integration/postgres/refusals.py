"""Starts that must be refused, what they tell, and small ways to break a database before."""

from __future__ import annotations

import psycopg
import pytest

from tests.servers.database import Database
from twophase.core.errors import TwophaseError
from twophase.stores.postgres import PostgresStore

WAIT_MS = 1_000
"""How long the stores of these tests wait for a database that is away."""


async def refusal(url: str) -> TwophaseError:
    """Start a store that must refuse; its error, which is what the server prints."""
    store = PostgresStore(url, outage_wait_ms=WAIT_MS)
    try:
        with pytest.raises(TwophaseError) as caught:
            await store.start()
    finally:
        await store.stop()
    return caught.value


async def made(database: Database) -> None:
    """Make the tables of a store."""
    store = PostgresStore(database.dsn)
    await store.start()
    await store.stop()


def execute(database: Database, *statements: str) -> None:
    """Run statements as the owner of everything."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def as_user(database: Database, name: str, password: str) -> str:
    """The URL of the database for another user."""
    return f"postgresql://{name}:{password}@{database.host}:{database.port}/{database.name}"
