"""`twophase barrier clean` with real coordinators.

They agree, do not agree, or do not answer.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from tests.integration.barrier.test_cleaning import NOW_MS, OLD_MS, gids, horizon, put, put_branch
from tests.servers.database import Database
from tests.support.business_databases import SYNC_DRIVERS, Bank
from twophase import Message
from twophase.barrier.cleaning import DAY_MS
from twophase.cli.barrier import app
from twophase.core.lifecycle import State
from twophase.testing import InProcessCoordinator

NOBODY = "http://127.0.0.1:1/check"


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCoordinator]:
    """A real coordinator without messages."""
    monkeypatch.setattr("twophase.barrier.cleaning._PAUSE", 0)
    with InProcessCoordinator() as made:
        yield made


def clean(bank: Bank, *servers: str, options: tuple[str, ...] = ()) -> Result:
    arguments = [argument for server in servers for argument in ("--coordinator", server)]
    return CliRunner().invoke(app, ["clean", bank.url(SYNC_DRIVERS[bank.kind]), *arguments, *options])


def test_what_every_coordinator_agrees_to_is_removed(bank: Bank, coordinator: InProcessCoordinator) -> None:
    put(bank, "old", OLD_MS)
    put_branch(bank, "branch", OLD_MS - 2 * DAY_MS)
    put(bank, "young", NOW_MS)

    tried = clean(bank, coordinator.url, options=("--dry-run",))
    assert (tried.exit_code, "would be removed: 1" in tried.output) == (0, True), tried.output
    assert gids(bank) == {"old", "branch", "young"}

    done = clean(bank, coordinator.url, coordinator.url + "/")
    assert done.exit_code == 0, done.output
    assert gids(bank) == {"young"}


def test_the_url_of_a_service_on_asyncpg_will_do(postgres_bank: Bank, coordinator: InProcessCoordinator) -> None:
    put(postgres_bank, "old", OLD_MS)
    url = f"{postgres_bank.url('asyncpg')}?ssl=prefer&prepared_statement_cache_size=0&command_timeout=5"
    done = CliRunner().invoke(app, ["clean", url, "--coordinator", coordinator.url])
    assert done.exit_code == 0, done.output
    assert gids(postgres_bank) == set()


def test_an_undecided_message_of_this_database_keeps_its_rows(
    sqlite_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message was prepared 40 days ago and never decided.

    A message whose check address names another database does not count.
    """
    (identity,) = (value for (value,) in sqlite_bank.query("select value from twophase_meta where name = 'identity'"))
    store = f"sqlite:///{tmp_path / 'coordinator.db'}"
    with InProcessCoordinator(store, timeout_to_fail_ms=86_400_000, retention_ms=0) as made:
        for check in (f"{NOBODY}?barrier={identity}", f"{NOBODY}?barrier=another"):
            Message(made.url).add("http://127.0.0.1:1/in", {}).prepare(check)
        aged = 40 * DAY_MS
    _make_older(tmp_path / "coordinator.db", "another", 2 * aged)
    _make_older(tmp_path / "coordinator.db", str(identity), aged)
    prepared_ms = time.time_ns() // 1_000_000 - aged
    for gid, at_ms in (("older", prepared_ms - DAY_MS), ("younger", prepared_ms + DAY_MS)):
        put(sqlite_bank, gid, at_ms)

    with InProcessCoordinator(store, timeout_to_fail_ms=86_400_000, retention_ms=0) as made:
        assert clean(sqlite_bank, made.url).exit_code == 0
        assert gids(sqlite_bank) == {"younger"}
        assert abs((horizon(sqlite_bank) or 0) - prepared_ms) < 60_000
        assert clean(sqlite_bank, made.url, options=("--check-url", "http://bank-z/")).exit_code == 0
        assert gids(sqlite_bank) == set()


@pytest.mark.postgres
def test_an_undecided_message_in_postgresql_keeps_rows_of_its_check_address_alone(
    postgres_bank: Bank, postgres_database: Database
) -> None:
    """Store and bank are both PostgreSQL.

    A message with another check address does not hold this database's rows.
    """
    with InProcessCoordinator(postgres_database.dsn, timeout_to_fail_ms=86_400_000, retention_ms=0) as made:
        for check in (f"{NOBODY}?of=ours", "http://127.0.0.1:1/another"):
            Message(made.url).add("http://127.0.0.1:1/in", {}).prepare(check)
    aged = 40 * DAY_MS
    prepared_ms = time.time_ns() // 1_000_000 - aged
    with psycopg.connect(postgres_database.dsn) as connection:
        for check, by_ms in (("another", 2 * aged), ("ours", aged)):
            changed = connection.execute(
                "update message set created_ms = created_ms - %s where position(%s::bytea in body) > 0",
                (by_ms, check.encode()),
            )
            assert changed.rowcount == 1
    for gid, at_ms in (("older", prepared_ms - DAY_MS), ("younger", prepared_ms + DAY_MS)):
        put(postgres_bank, gid, at_ms)

    with InProcessCoordinator(postgres_database.dsn, timeout_to_fail_ms=86_400_000, retention_ms=0) as made:
        assert clean(postgres_bank, made.url, options=("--check-url", NOBODY)).exit_code == 0
        assert gids(postgres_bank) == {"younger"}
        assert clean(postgres_bank, made.url, options=("--check-url", "http://bank-z/")).exit_code == 0
        assert gids(postgres_bank) == set()


def _make_older(store: Path, check: str, by_ms: int) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(
            "update message set created_ms = created_ms - ? where instr(body, cast(? as blob)) > 0", (by_ms, check)
        )
    connection.close()


def test_a_silent_coordinator_freezes_everything(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    put(sqlite_bank, "old", OLD_MS)

    done = clean(sqlite_bank, coordinator.url, "http://127.0.0.1:1")

    assert done.exit_code == 3
    assert "Nothing is removed, because not every coordinator agrees: http://127.0.0.1:1 cannot be asked" in done.output
    assert (gids(sqlite_bank), horizon(sqlite_bank)) == ({"old"}, None)


def test_a_server_that_is_none_freezes_everything(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    done = clean(sqlite_bank, coordinator.url + "/elsewhere")

    assert (done.exit_code, "answered 404" in done.output) == (3, True)


def test_a_clock_that_is_an_hour_off_freezes_everything(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    put(sqlite_bank, "old", OLD_MS)
    coordinator.advance(3600)

    done = clean(sqlite_bank, coordinator.url)

    assert (done.exit_code, bool(re.search(r"are (359\d|360\d) s apart", done.output))) == (3, True), done.output
    assert gids(sqlite_bank) == {"old"}


def test_an_undelivered_message_keeps_branches_rows(sqlite_bank: Bank, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'coordinator.db'}"
    with InProcessCoordinator(store, retention_ms=0) as made:
        message = Message(made.url).add("http://127.0.0.1:1/in", {})
        message.submit()
        assert made.state(message.gid) is State.SUBMITTED
    with sqlite3.connect(tmp_path / "coordinator.db") as connection:
        connection.execute("update message set created_ms = created_ms - ?", (50 * DAY_MS,))
    connection.close()
    put_branch(sqlite_bank, "older", NOW_MS - 52 * DAY_MS)
    put_branch(sqlite_bank, "younger", NOW_MS - 49 * DAY_MS)

    with InProcessCoordinator(store, retention_ms=0) as made:
        assert clean(sqlite_bank, made.url).exit_code == 0

    assert gids(sqlite_bank) == {"younger"}


@pytest.mark.parametrize("is_submitted", [False, True])
def test_of_two_coordinators_the_one_with_the_older_message_counts(
    sqlite_bank: Bank, tmp_path: Path, coordinator: InProcessCoordinator, is_submitted: bool
) -> None:
    store = f"sqlite:///{tmp_path / 'coordinator.db'}"
    with InProcessCoordinator(store, timeout_to_fail_ms=86_400_000, retention_ms=0) as made:
        message = Message(made.url).add("http://127.0.0.1:1/in", {})
        if is_submitted:
            message.submit()
        else:
            message.prepare(NOBODY)
    with sqlite3.connect(tmp_path / "coordinator.db") as connection:
        connection.execute("update message set created_ms = created_ms - ?", (50 * DAY_MS,))
    connection.close()
    write = put_branch if is_submitted else put
    write(sqlite_bank, "older", NOW_MS - 52 * DAY_MS)
    write(sqlite_bank, "younger", NOW_MS - 49 * DAY_MS)

    with InProcessCoordinator(store, timeout_to_fail_ms=86_400_000, retention_ms=0) as made:
        assert clean(sqlite_bank, coordinator.url, made.url).exit_code == 0

    assert gids(sqlite_bank) == {"younger"}


def test_less_than_a_day_is_refused(sqlite_bank: Bank, coordinator: InProcessCoordinator) -> None:
    done = clean(sqlite_bank, coordinator.url, options=("--keep", "0.5"))

    assert (done.exit_code, "a day" in done.output) == (2, True)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, coordinator: InProcessCoordinator) -> None:
    done = clean(Bank("sqlite", str(tmp_path / "bank.db")), coordinator.url)

    assert (done.exit_code, "There is no file" in done.output) == (2, True)
    assert not (tmp_path / "bank.db").exists()


def test_a_database_without_a_barrier_says_what_to_run(tmp_path: Path, coordinator: InProcessCoordinator) -> None:
    (tmp_path / "bank.db").touch()
    done = clean(Bank("sqlite", str(tmp_path / "bank.db")), coordinator.url)

    assert (done.exit_code, "barrier install" in done.output) == (2, True)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "mysql", "mysql+asyncmy"])
def test_a_database_that_is_not_there_keeps_its_password_secret(scheme: str, coordinator: InProcessCoordinator) -> None:
    url = f"{scheme}://me:hu%40sh@127.0.0.1:1/x"
    done = CliRunner().invoke(app, ["clean", url, "--coordinator", coordinator.url])

    assert (done.exit_code, done.output.startswith("Cannot reach 127.0.0.1:1: ")) == (1, True)
    assert "sh@" not in done.output


def test_no_coordinator_is_no_agreement(sqlite_bank: Bank) -> None:
    assert CliRunner().invoke(app, ["clean", sqlite_bank.url("pysqlite")]).exit_code == 2
