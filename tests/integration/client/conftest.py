"""What the specification stands on: a bank of each kind, a coordinator that can be told to fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.client.banks import KINDS, Bank, Kind, open_ledger
from tests.integration.client.coordinator import RecordingCoordinator
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.integration.client.ledgers import Ledger, SqliteLedger

MARKS = {"postgresql": [pytest.mark.postgres], "mysql": [pytest.mark.mariadb], "sqlite": []}
FIXTURES = {"postgresql": "postgres_database", "mysql": "mariadb_database"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test over every kind of engine, or over those its `kinds` marker picks."""
    if "kind" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("kinds")
    picked = [kind for kind in KINDS if marker is None or marker.args[0](kind)]
    assert picked, "a specification that runs over nothing proves nothing"
    params = [pytest.param(kind, id=kind.name.replace(" ", "-"), marks=MARKS[kind.database]) for kind in picked]
    metafunc.parametrize("kind", params)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "kinds(predicate): the kinds of engine this specification is about")


@pytest.fixture
def coordinator() -> Iterator[RecordingCoordinator]:
    """A coordinator that answers well until told otherwise."""
    with RecordingCoordinator().running() as running:
        yield running


@pytest.fixture
def ledger(kind: Kind, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """The kind's database with two accounts and a barrier."""
    fixture = FIXTURES.get(kind.database)
    opened = open_ledger(kind.database, tmp_path, request.getfixturevalue(fixture) if fixture else None)
    yield opened
    opened.close()


@pytest.fixture
async def bank(kind: Kind, ledger: Ledger) -> AsyncIterator[Bank]:
    """An engine of the kind."""
    bank = Bank(kind, ledger, await kind.open(ledger, None))
    yield bank
    await bank.close()


@pytest.fixture
def proxy(ledger: Ledger) -> Iterator[CuttingProxy]:
    """A wire to the database's server that can be cut."""
    assert not isinstance(ledger, SqliteLedger)
    database = ledger.database  # type: ignore[attr-defined]
    with CuttingProxy(database.host, database.port).running() as running:
        yield running


@pytest.fixture
async def bank_behind_proxy(kind: Kind, ledger: Ledger, proxy: CuttingProxy) -> AsyncIterator[Bank]:
    """An engine of the kind whose wire can be cut."""
    bank = Bank(kind, ledger, await kind.open(ledger, proxy.port))
    yield bank
    await bank.close()
