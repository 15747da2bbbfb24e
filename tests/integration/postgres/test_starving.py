"""A database that answers but cannot work: full, crowded, slow, closed.

Requests get 503, nothing is lost, and it recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.refusals import as_user, execute
from tests.integration.postgres.test_outages import SLACK_S, WAIT_S
from tests.integration.postgres.traffic import Traffic
from tests.servers.database import Database
from tests.servers.postgres import PostgresServer
from tests.servers.server import short_temporary_directory
from tests.small_disk import fill, small_disk
from tests.support.fake_coordinator import get
from tests.support.server_process import BranchService, ServerProcess, serving
from tests.support.waiting import blocked_until, until
from twophase.server.api.recent import FRESH_S
from twophase.server.app import EXIT_CLEAN

pytestmark = pytest.mark.postgres

DISK_BYTES = 24 * 1024 * 1024
HANG_UP = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid()"
)


@contextlib.asynccontextmanager
async def _under_load(
    folder: Path, store: str, database: Database, branches: BranchService
) -> AsyncIterator[tuple[ServerProcess, Traffic]]:
    """Run a server with traffic before, during and after the block.

    Every promise is kept, and no restart is needed.
    """
    async with serving(folder, "--store", store) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            await traffic.until_completed(100)
            yield server, traffic
            assert (await server.ask(get("/health/live"))).status == 200
            await traffic.until_completed(100)
        await until_at_rest(database.dsn)
        assert violations(database.dsn, traffic, branches) == []
        code, errors = await server.terminate()
        assert code == EXIT_CLEAN
        assert "Traceback" not in errors


@pytest.fixture
def disk(own_server: PostgresServer) -> Iterator[Path]:
    """A small disk that the database server can reach."""
    assert own_server
    parent = Path(tempfile.mkdtemp(prefix="twophase-", dir=short_temporary_directory()))
    parent.chmod(0o711)
    with small_disk(parent / "disk", DISK_BYTES) as mounted:
        place = mounted / "tablespace"
        place.mkdir(mode=0o700)
        owner = Path(own_server.address.directory).stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        yield mounted
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def database_on_disk(own_server: PostgresServer, disk: Path) -> Iterator[Database]:
    """A database whose tables are on the small disk."""
    own = own_server.database("postgres")
    execute(own, f"create tablespace tiny location '{disk / 'tablespace'}'")
    execute(own, "create database on_disk tablespace tiny")
    yield own_server.database("on_disk")
    own_server.drop_database("on_disk")
    execute(own, "drop tablespace tiny")


@pytest.fixture
def clerk(database: Database) -> Iterator[str]:
    """The URL for a user who is no superuser and owns what it makes."""
    execute(database, "create role clerk login password 'clerk-secret'", "grant create on schema public to clerk")
    yield as_user(database, "clerk", "clerk-secret")
    execute(database, "drop owned by clerk cascade", "drop role clerk")


async def test_a_full_disk_refuses_with_its_code_and_is_recovered_from(
    tmp_path: Path, database_on_disk: Database, disk: Path, branches: BranchService
) -> None:
    database = database_on_disk
    async with _under_load(tmp_path, database.dsn, database, branches) as (_, traffic):
        ballast = await asyncio.to_thread(fill, disk)
        await traffic.until_refused("TP-4004")
        ballast.unlink()
        assert traffic.refused.keys() == {"TP-4004"}


async def test_when_no_connection_is_left_requests_are_refused_until_there_is_one(
    tmp_path: Path, database: Database, clerk: str, branches: BranchService
) -> None:
    async with _under_load(tmp_path, clerk, database, branches) as (_, traffic):
        execute(database, "alter role clerk connection limit 0", HANG_UP)
        await traffic.until_refused("TP-4009")
        execute(database, "alter role clerk connection limit -1")


async def test_a_statement_timeout_of_the_database_does_not_break_what_waits_for_a_lock(
    tmp_path: Path, database: Database, branches: BranchService
) -> None:
    waited_long = (
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        " and clock_timestamp() - query_start > interval '600 ms'"
    )
    execute(database, f"alter database {database.name} set statement_timeout = '300ms'")
    async with _under_load(tmp_path, database.dsn, database, branches) as (_, traffic):
        with psycopg.connect(database.dsn) as operator, psycopg.connect(database.dsn, autocommit=True) as watcher:
            operator.execute("lock table message in access exclusive mode")
            await until(lambda: traffic.refused or watcher.execute(waited_long).fetchall())
        assert traffic.refused == {}


async def test_a_table_that_an_operator_has_locked_is_waited_for_within_the_bound(
    tmp_path: Path, database: Database, branches: BranchService
) -> None:
    async with _under_load(tmp_path, database.dsn, database, branches) as (_, traffic):
        with psycopg.connect(database.dsn) as operator:
            operator.execute("lock table message in access exclusive mode")
            await traffic.until_refused("TP-4009")
        assert traffic.slowest_s < WAIT_S + SLACK_S


async def test_rights_taken_away_are_named_and_given_back_work_again(
    tmp_path: Path, database: Database, clerk: str, branches: BranchService
) -> None:
    async with _under_load(tmp_path, clerk, database, branches) as (_, traffic):
        execute(database, "alter table message owner to current_user", "revoke all on message from clerk")
        await traffic.until_refused("TP-4011")
        execute(database, "grant all on message to clerk")


async def test_a_database_that_becomes_read_only_is_named_and_recovered_from(
    tmp_path: Path, database: Database, branches: BranchService
) -> None:
    switch = f"alter database {database.name} set default_transaction_read_only"
    async with _under_load(tmp_path, database.dsn, database, branches) as (_, traffic):
        execute(database, f"{switch} = on", HANG_UP)
        await traffic.until_refused("TP-4003")
        execute(database, "set default_transaction_read_only = off", f"{switch} = off", HANG_UP)


def _until_alone(database: Database) -> None:
    """Wait until the sessions that were hung up have ended."""
    others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        blocked_until(lambda: not connection.execute(others).fetchall(), "they end")


async def test_a_file_of_the_url_that_vanishes_is_reported_by_name_and_its_return_is_enough(
    tmp_path: Path, database: Database
) -> None:
    authority = tmp_path / "authority.pem"
    authority.touch()
    login = f"user={database.user}&password={database.password}"
    address = f"{database.host}:{database.port}/{database.name}"
    store = f"postgresql://{address}?{login}&sslmode=disable&sslrootcert={authority}"
    async with serving(tmp_path, "--store", store) as server:
        assert f"(store postgresql://{address})" in server.ready_line
        authority.unlink()
        execute(database, HANG_UP)
        _until_alone(database)

        refused = await server.post("prepare", gid="g")
        ready = await server.ask(get("/health/ready"))
        metrics = await server.ask(get("/metrics"))

        for answer in (refused, ready):
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert b"authority.pem cannot be read" in answer.body
        assert metrics.status == 200
        assert b"twophase_store_up 0.0" in metrics.body
        authority.touch()
        assert (await server.post("prepare", gid="g")).status == 200
        await asyncio.sleep(FRESH_S)
        assert (await server.ask(get("/health/ready"))).status == 200
        code, errors = await server.terminate()
    assert code == EXIT_CLEAN
    assert "authority.pem cannot be read" in errors
    assert database.password not in errors + server.ready_line
    assert "Traceback" not in errors
