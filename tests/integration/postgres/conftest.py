"""A PostgreSQL that a test may kill, break and starve.

It has a database for the test, and a server process on that database.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest
import uvloop

from tests.servers.database import Database
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.support.server_process import BranchService, branch_service


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The server runs on uvloop, so its store is tested on it."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that tests may stop and start again; every test leaves it running."""
    with running(PostgresServer()) as server:
        yield server


@pytest.fixture
def database(own_server: PostgresServer) -> Iterator[Database]:
    """A fresh database on that server."""
    name = f"test_{secrets.token_hex(6)}"
    yield own_server.create_database(name)
    own_server.drop_database(name)


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """A bad network before the database."""
    with Proxy(database.host, database.port) as one:
        yield one


@pytest.fixture
def dsn_through_proxy(database: Database, proxy: Proxy) -> str:
    """The database, as seen through the bad network."""
    return f"postgresql://{database.user}:{database.password}@127.0.0.1:{proxy.port}/{database.name}"


@pytest.fixture
async def branches() -> AsyncIterator[BranchService]:
    """The service that receives a test's messages."""
    async with branch_service() as service:
        yield service
