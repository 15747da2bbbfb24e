"""Starts that must be refused, their errors, and small damages done before."""

from __future__ import annotations

import psycopg
import pytest

from tests.servers.database import Database
from twophase.core.errors import TwophaseError
from twophase.stores.postgres import PostgresStore

WAIT_MS = 1_000
"""Time that a store waits for an absent database, where a test is about that wait."""
_PATIENT_MS = 30_000
"""Longer than a busy machine needs to refuse."""


async def refusal(url: str, wait_ms: int = _PATIENT_MS) -> TwophaseError:
    """Start a store that must refuse, and return its error, which the server prints."""
    store = PostgresStore(url, outage_wait_ms=wait_ms)
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
    """Return the URL of the database for another user."""
    return f"postgresql://{name}:{password}@{database.host}:{database.port}/{database.name}"
