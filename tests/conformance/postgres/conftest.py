"""A schema of its own for every test, with nodes on it.

Some connections behave as no store does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.conformance.engines import PostgresEngine
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.support.items import SetClock
from tests.support.waiting import until
from twophase.stores.postgres import PostgresStore

LEASE_MS = 10_000
PATIENT_MS = 30_000
"""Time that a store waits for its database, however busy the machine is."""
Raw = psycopg.Connection[Any]
Join = Callable[..., Coroutine[Any, Any, PostgresStore]]


@pytest.fixture
def url(postgres_server: PostgresServer, tmp_path: Path) -> str:
    """A store's URL, its schema empty."""
    engine = PostgresEngine()
    engine.make(tmp_path, SetClock())
    return engine.url(tmp_path)


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """The network between the store and its database."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with Proxy(parts.hostname, parts.port) as one:
        yield one


@pytest.fixture
async def join(url: str, clock: SetClock) -> AsyncIterator[Join]:
    """A function that starts one node more, by the clock of the test."""
    nodes: list[PostgresStore] = []

    async def start(**arguments: Any) -> PostgresStore:
        settings: dict[str, Any] = {"clock": clock, "lease_ms": LEASE_MS, "outage_wait_ms": PATIENT_MS} | arguments
        woken = settings.pop("woken", None)
        node = PostgresStore(settings.pop("url", url), **settings)
        if woken is not None:
            node.on_wake(woken)
        nodes.append(node)
        await node.start()
        return node

    yield start
    for node in nodes:
        await node.stop()


@pytest.fixture
def raw(url: str) -> Iterator[Raw]:
    """A connection whose transactions end when the test ends them."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


async def somebody_waits_for(raw: Raw) -> None:
    """Return when another session waits for a lock of this connection's transaction."""
    await until(
        lambda: raw.execute(
            "select from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))"
        ).fetchall()
    )


@contextlib.asynccontextmanager
async def asked(store: PostgresStore) -> AsyncIterator[list[str]]:
    """Collect the statements of the store's writing connection.

    There is one for each round trip.
    """
    statements: list[str] = []
    connection = store._reconnecting._connection
    assert connection is not None

    def note(query: Any) -> None:
        statements.append(query.query)

    connection.add_query_logger(note)
    yield statements
    await asyncio.sleep(0)  # the driver logs with the next turn of the loop
    connection.remove_query_logger(note)
