"""The harness of this package, made once a worker.

A part that this machine lacks is reported by name.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import pytest

from tests.clients import go_program
from tests.clients.harness import Coordinator, Harness, coordinating
from tests.clients.ledgers import Ledger, MariadbLedger, PostgresLedger, RedisLedger
from tests.servers.mariadb import MariadbServer
from tests.servers.missing import not_tested
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """A server process."""
    with coordinating(tmp_path_factory.mktemp("coordinator")) as one:
        yield one


@pytest.fixture(scope="session")
def harness(
    coordinator: Coordinator,
    mariadb_server: MariadbServer,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
) -> Iterator[Harness]:
    """Everything that a test needs is started when the first one needs it."""
    name = f"clients_{secrets.token_hex(4)}"
    mariadb = MariadbLedger(mariadb_server.create_database(name))
    postgres = PostgresLedger(postgres_server.create_database(name))
    mariadb.make()
    postgres.make()
    redis = RedisLedger(redis_server.create_database(name))
    ledgers: dict[str, Ledger] = {"mysql": mariadb, "postgres": postgres, "redis": redis}
    with contextlib.ExitStack() as stack:
        yield Harness(coordinator, ledgers, _go_bank, stack)


def _go_bank() -> str:
    try:
        return str(go_program.program())
    except go_program.CannotBuild as error:
        not_tested(go_program.PART, str(error))
