"""The harness of this package, made once a worker.

A part that this machine lacks is reported by name.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import go_program
from tests.clients.harness import Coordinator, Harness, coordinating, program
from tests.clients.ledgers import Ledger, MariadbLedger, PostgresLedger, RedisLedger
from tests.servers.mariadb import MariadbServer
from tests.servers.missing import not_tested
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.support.identities import token_of, write
from twophase.server.identity.scopes import Scope

KEYS = {"k0": "another secret of the bank", "k1": "of the bank, and the coordinator"}


@pytest.fixture(scope="session")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """A server process."""
    with coordinating(tmp_path_factory.mktemp("coordinator")) as one:
        yield one


@pytest.fixture(scope="session")
def ledgers(
    mariadb_server: MariadbServer, postgres_server: PostgresServer, redis_server: RedisServer
) -> dict[str, Ledger]:
    """The banks' databases."""
    name = f"clients_{secrets.token_hex(4)}"
    mariadb = MariadbLedger(mariadb_server.create_database(name))
    postgres = PostgresLedger(postgres_server.create_database(name))
    mariadb.make()
    postgres.make()
    redis = RedisLedger(redis_server.create_database(name))
    return {"mysql": mariadb, "postgres": postgres, "redis": redis}


@pytest.fixture(scope="session")
def harness(coordinator: Coordinator, ledgers: dict[str, Ledger]) -> Iterator[Harness]:
    """Everything that a test needs is started when the first one needs it."""
    with contextlib.ExitStack() as stack:
        yield Harness(coordinator, ledgers, _go_bank, stack)


@pytest.fixture(scope="session")
def harness_with_tokens(
    tmp_path_factory: pytest.TempPathFactory, ledgers: dict[str, Ledger]
) -> Iterator[tuple[Harness, Path]]:
    """The same with a server that needs tokens, and the file of its log."""
    folder = tmp_path_factory.mktemp("coordinator")
    tokens = write(folder, "bank", [Scope.PRODUCE])
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(coordinating(folder, tokens, token_of("bank")))
        yield Harness(coordinator, ledgers, _go_bank, stack), folder / "server.log"


@pytest.fixture(scope="session")
def signing_harness(tmp_path_factory: pytest.TempPathFactory, ledgers: dict[str, Ledger]) -> Iterator[Harness]:
    """The same with a server that signs its calls; twophase's service verifies them.

    The services run before it: its destinations are their addresses.
    """
    with contextlib.ExitStack() as stack:
        services = {
            client: stack.enter_context(program(client, ledgers, _go_bank).serving({"BANK_KEYS": json.dumps(KEYS)}))
            for client in ("go", "dtmcli", "sdk")
        }
        urls = [url for one in services.values() for url in (one.http, f"grpc://{one.grpc}" if one.grpc else "") if url]
        signed = [{"name": f"d{i}", "url": url, "key": "env:BANK_KEY", "key_id": "k1"} for i, url in enumerate(urls)]
        also = {"TWOPHASE_DESTINATIONS": json.dumps(signed), "BANK_KEY": KEYS["k1"]}
        coordinator = stack.enter_context(coordinating(tmp_path_factory.mktemp("coordinator"), also=also))
        yield Harness(coordinator, ledgers, _go_bank, stack, services)


def _go_bank() -> str:
    try:
        return str(go_program.program())
    except go_program.CannotBuild as error:
        not_tested(go_program.PART, str(error))
