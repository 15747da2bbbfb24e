"""The fixtures of the specification: a bank of each kind, and a coordinator.

The coordinator fails when a test asks for it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.client.banks import KINDS, Bank, Kind
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.integration.client.ledgers import Ledger, MariadbLedger, PostgresLedger, SqliteLedger
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.support.patient_locks import patient_locks
from tests.support.recording_coordinator import RecordingCoordinator

__all__ = ["patient_locks"]

MARKS = {"postgresql": [pytest.mark.postgres], "mysql": [pytest.mark.mariadb], "sqlite": []}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test over every kind of engine, or over those its `kinds` marker picks."""
    if "kind" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("kinds")
    picked = [kind for kind in KINDS if marker is None or marker.kwargs["where"](kind)]
    assert picked, "a specification that runs over nothing proves nothing"
    params = [pytest.param(kind, id=kind.name.replace(" ", "-"), marks=MARKS[kind.database]) for kind in picked]
    metafunc.parametrize("kind", params)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "kinds(where): the kinds of engine this specification is about")


@pytest.fixture
def coordinator() -> Iterator[RecordingCoordinator]:
    """A coordinator that answers well until a test changes its answers."""
    with RecordingCoordinator().running() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_ledger(postgres_server: PostgresServer) -> Iterator[PostgresLedger]:
    """One database for all tests of a worker.

    Making one takes longer than most of the tests.
    """
    name = f"client_{secrets.token_hex(6)}"
    ledger = PostgresLedger(postgres_server.create_database(name))
    yield ledger
    ledger.close()
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def mariadb_ledger(mariadb_server: MariadbServer) -> Iterator[MariadbLedger]:
    """The same on MariaDB."""
    name = f"client_{secrets.token_hex(6)}"
    ledger = MariadbLedger(mariadb_server.create_database(name))
    yield ledger
    ledger.close()
    mariadb_server.drop_database(name)


@pytest.fixture
def ledger(kind: Kind, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """The kind's database: two accounts, an empty barrier."""
    if kind.database == "sqlite":
        ledger: Ledger = SqliteLedger(tmp_path)
        yield ledger
        ledger.close()
    else:
        ledger = request.getfixturevalue("postgres_ledger" if kind.database == "postgresql" else "mariadb_ledger")
        ledger.reset()
        yield ledger


@pytest.fixture
async def bank(kind: Kind, ledger: Ledger) -> AsyncIterator[Bank]:
    """An engine of the kind."""
    bank = Bank(kind, ledger, await kind.open(ledger, None))
    yield bank
    await bank.close()


@pytest.fixture
def proxy(ledger: Ledger) -> Iterator[CuttingProxy]:
    """A proxy before the database's server whose connections can be cut."""
    assert isinstance(ledger, PostgresLedger | MariadbLedger)
    database = ledger.database
    with CuttingProxy(database.host, database.port).running() as running:
        yield running


@pytest.fixture
async def bank_behind_proxy(kind: Kind, ledger: Ledger, proxy: CuttingProxy) -> AsyncIterator[Bank]:
    """An engine of the kind, behind that proxy."""
    bank = Bank(kind, ledger, await kind.open(ledger, proxy.port))
    yield bank
    await bank.close()
