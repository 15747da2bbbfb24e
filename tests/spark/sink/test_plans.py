"""Every statement over a growing table of the ledger is served by an index.

Its file says which one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from tests.servers.database import Database
from tests.support.secret_files import secret_in
from twophase_spark.sink.database import engine_of, install_ledger, statement
from twophase_spark.sink.ledger import Batch, Ledger

BATCHES = 40
MESSAGES = 1_500
VALUES = {
    "group_id": "b7",
    "publisher": "p7",
    "wanted": "b7",
    "writer": 7,
    "after": "",
    "page_rows": 100,
    "gid": "7-7",
    "rows_max": 50,
}
GROWING = (
    "count_decided",
    "delete_message",
    "find_batches",
    "list_batches",
    "read_decision",
    "read_gid",
    "read_key_columns",
    "read_latest",
    "read_page",
    "read_unpublished",
    "read_winners",
    "set_won",
)


def seeded(reference: str) -> Engine:
    """Sixty thousand messages in forty batches of as many publishers."""
    engine = engine_of(reference)
    install_ledger(engine)
    ledger = Ledger(engine)
    for number in range(BATCHES):
        ledger.begin(Batch(f"b{number}", f"p{number}"), "id")
    with engine.begin() as connection:
        writers = [{"writer": number, "group_id": f"b{number}"} for number in range(BATCHES)]
        connection.execute(statement("insert_writer"), writers)
        messages = [
            {"writer": number, "gid": f"{number}-{one}"} for number in range(BATCHES) for one in range(MESSAGES)
        ]
        connection.execute(statement("insert_message"), messages)
        connection.execute(text("analyze"))
    return engine


@pytest.fixture(scope="module")
def sqlite_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The ledger for all statements: they are only explained, which changes nothing."""
    engine = seeded(f"sqlite:///{tmp_path_factory.mktemp('plans') / 'ledger.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def postgres_ledger(tmp_path: Path, postgres_database: Database) -> Iterator[Engine]:
    engine = seeded(secret_in(tmp_path / "ledger-url", postgres_database.dsn))
    yield engine
    engine.dispose()


OF_SQLITE = (*GROWING, "read_others")
OF_POSTGRESQL = (*GROWING, "list_all_batches", "read_others_postgresql")
GIVEN = "SCAN json_each"
"""The gids that the statement was given, not a table."""


def plan(engine: Engine, name: str, explain: str) -> str:
    sql = statement(name)
    given = VALUES | {"gids": ["7-7", "7-8"] if engine.dialect.name == "postgresql" else '["7-7", "7-8"]'}
    values = {key: value for key, value in given.items() if key in sql.compile().params}
    with engine.connect() as connection:
        return "\n".join(str(row) for row in connection.execute(text(f"{explain} {sql.text}"), values))


@pytest.mark.parametrize("name", OF_SQLITE)
def test_sqlite_scans_nothing(sqlite_ledger: Engine, name: str) -> None:
    found = plan(sqlite_ledger, name, "explain query plan")

    scans = [line for line in found.splitlines() if "SCAN" in line]
    assert not [line for line in scans if "SCAN each_key" not in line and GIVEN not in line], found


@pytest.mark.postgres
def test_postgresql_never_scans_the_messages(postgres_ledger: Engine) -> None:
    for name in OF_POSTGRESQL:
        found = plan(postgres_ledger, name, "explain")
        assert "Seq Scan on twophase_spark_message" not in found, (name, found)
