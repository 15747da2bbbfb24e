"""`twophase migrate`, as an operator runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.servers.database import Database
from twophase.cli.migrate import app
from twophase.stores.postgres.schema import SCHEMA_VERSION
from twophase.stores.sqlite import schema as sqlite_schema

runner = CliRunner()


def _run(*arguments: str) -> tuple[int, str]:
    result = runner.invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.mark.postgres
def test_a_postgresql_schema_is_made_once(postgres_database: Database) -> None:
    url = postgres_database.dsn
    name = f"postgresql://{postgres_database.host}:{postgres_database.port}/{postgres_database.name}"

    assert _run("--store", url) == (0, f"{name}: schema version {SCHEMA_VERSION}, made anew\n")
    assert _run("--store", url) == (0, f"{name}: schema version {SCHEMA_VERSION}, nothing to do\n")


@pytest.mark.postgres
def test_a_database_that_is_not_there_is_a_line_and_a_code(postgres_database: Database) -> None:
    code, told = _run("--store", postgres_database.dsn + "_not_there")

    assert code == 2
    assert told.startswith("TP-7000:")
    assert postgres_database.password not in told


@pytest.mark.postgres
def test_what_is_printed_makes_the_same_schema(postgres_database: Database) -> None:
    import psycopg

    code, script = _run("--store", "postgresql://nowhere/x", "--print")
    assert code == 0
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute(script.encode())

    assert _run("--store", postgres_database.dsn)[1].endswith("nothing to do\n")


def test_a_file_is_made_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"

    assert _run("--store", url) == (0, f"{url}: schema version {sqlite_schema.SCHEMA_VERSION}, made anew\n")
    assert _run("--store", url) == (0, f"{url}: schema version {sqlite_schema.SCHEMA_VERSION}, nothing to do\n")
    code, script = _run("--store", url, "--print")
    assert code == 0
    assert "create table message" in script


def test_the_url_may_be_named_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_URL", f"sqlite:///{tmp_path}/store.db")

    assert _run("--store", "env:STORE_URL")[1].startswith(f"sqlite:///{tmp_path}/store.db: schema version")
    code, told = _run("--store", f"file:{tmp_path}/nosuch")
    assert (code, told[:7]) == (2, "TP-7000")


def test_a_url_of_no_engine_is_a_line_and_a_code() -> None:
    code, told = _run("--store", "oracle://scott@db/orcl")

    assert code == 2
    assert told.startswith("TP-7000: store: no engine for 'oracle'")
