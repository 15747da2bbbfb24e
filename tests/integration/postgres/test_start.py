"""A database that cannot be used ends the start.

One line names the cause and the remedy, and the exit code fits it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from benchmarks.servers.ports import nobodys_port
from tests.integration.postgres.every_statement import execute_all
from tests.integration.postgres.refusals import WAIT_MS, as_user, execute, made, refusal
from tests.servers.database import Address, Database
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.support.items import flush, prepare
from tests.support.server_process import ServerProcess
from tests.support.watch import Watch
from twophase.core.errors import (
    ConfigurationError,
    NotAStore,
    SchemaMissing,
    SchemaTooNew,
    StoreDenied,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeDurability,
)
from twophase.server.app import EXIT_CONFIGURATION, EXIT_STORE
from twophase.stores.postgres import PostgresStore, connection, node_slots, schema

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "postgresql-store.md"


@pytest.fixture
def poor_user(database: Database) -> Iterator[tuple[str, str]]:
    """A user with no right but to connect; its name and password."""
    name, password = f"poor_{secrets.token_hex(4)}", secrets.token_hex(8)
    execute(database, f"create role {name} login password '{password}'", "revoke create on schema public from public")
    yield name, password
    execute(database, f"drop owned by {name} cascade", f"drop role {name}")


@pytest.mark.parametrize(
    ("url", "exit_code"),
    [
        ("postgresql://{user}:wrong-secret@127.0.0.1:{port}/{name}", EXIT_STORE),
        ("postgresql://{user}:{password}@127.0.0.1:{port}/not_there", EXIT_CONFIGURATION),
        ("postgresql://{user}:{password}@127.0.0.1:{port}/{name}?lock_timeuot=10", EXIT_CONFIGURATION),
    ],
    ids=["wrong password", "no such database", "no such setting"],
)
async def test_the_process_says_in_one_line_why_it_does_not_start(
    tmp_path: Path, database: Database, url: str, exit_code: int
) -> None:
    known = {"user": database.user, "password": database.password, "port": database.port, "name": database.name}
    server = await ServerProcess.spawn("--port", "0", "--store", url.format(**known), cwd=tmp_path)
    try:
        code, errors = await server.ended()
    finally:
        await server.kill()

    assert code == exit_code
    *warned, refused = errors.splitlines()
    assert refused.startswith("TP-")
    assert all(line.startswith("warning: every user of this machine may read the secret") for line in warned)
    assert "wrong-secret" not in errors
    assert database.password not in errors


async def test_a_wrong_password_is_denied(database: Database) -> None:
    error = await refusal(as_user(database, database.user, "wrong-secret"))

    assert isinstance(error, StoreDenied)
    assert "password" in error.message
    assert "wrong-secret" not in str(error)


async def test_a_database_that_does_not_exist_is_named(database: Database) -> None:
    error = await refusal(database.dsn + "_not_there")

    assert isinstance(error, ConfigurationError)
    assert f"{database.name}_not_there" in error.message


async def test_a_server_that_is_not_there_is_waited_for_then_named() -> None:
    port = nobodys_port()

    error = await refusal(f"postgresql://me:a-secret@127.0.0.1:{port}/db", WAIT_MS)
    assert isinstance(error, StoreUnavailable)
    assert str(port) in error.message
    assert "a-secret" not in str(error)


async def test_a_host_that_swallows_everything_is_given_up_within_the_bound(
    dsn_through_proxy: str, proxy: Proxy
) -> None:
    proxy.partition()

    async with Watch() as watch:
        error = await refusal(dsn_through_proxy, WAIT_MS)

    assert isinstance(error, StoreUnavailable)
    assert watch.waited_s < WAIT_MS / 1000 + 1


@pytest.mark.parametrize(("module", "step"), [(schema, "identify"), (schema, "_lock"), (node_slots, "take")])
async def test_a_database_that_falls_silent_in_the_middle_of_a_start_is_given_up_within_the_bound(
    dsn_through_proxy: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    real = getattr(module, step)

    async def silenced(*arguments: Any) -> Any:
        proxy.partition()
        return await real(*arguments)

    monkeypatch.setattr(module, step, silenced)
    monkeypatch.setattr(schema, "_LATE_S", WAIT_MS / 2000)
    monkeypatch.setattr(schema, "_LOCK_REPORTED_S", WAIT_MS / 2000)

    async with Watch() as watch:
        error = await refusal(dsn_through_proxy, WAIT_MS)

    assert isinstance(error, StoreUnavailable)
    assert watch.waited_s < 2 * WAIT_MS / 1000 + 1


async def test_a_database_that_comes_up_late_is_waited_for(own_server: PostgresServer, database: Database) -> None:
    own_server.shut_down()
    store = PostgresStore(database.dsn, outage_wait_ms=30_000)
    starting = asyncio.create_task(store.start())
    await asyncio.to_thread(own_server.restart)

    await starting

    assert (await flush(store, prepare("g"))).refused == {}
    await store.stop()


async def test_a_user_who_may_not_create_tables_gets_the_remedy_to_migrate_first(
    database: Database, poor_user: tuple[str, str]
) -> None:
    error = await refusal(as_user(database, *poor_user))

    assert isinstance(error, SchemaMissing)
    assert "permission denied" in error.message
    assert "twophase migrate" in error.remedy


async def test_a_user_without_rights_on_the_tables_of_another_owner_learns_which(
    database: Database, poor_user: tuple[str, str]
) -> None:
    await made(database)

    error = await refusal(as_user(database, *poor_user))

    assert isinstance(error, StoreDenied)
    assert "permission denied for table" in error.message


async def test_a_user_who_may_read_but_not_write_learns_which(database: Database, poor_user: tuple[str, str]) -> None:
    await made(database)
    execute(database, f"grant select on all tables in schema public to {poor_user[0]}")

    error = await refusal(as_user(database, *poor_user))

    assert isinstance(error, StoreDenied)
    assert "permission denied for table node" in error.message


async def test_a_user_with_the_documented_rights_needs_no_others(
    database: Database, poor_user: tuple[str, str]
) -> None:
    await made(database)
    (documented,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    execute(database, documented.replace("to twophase;", f"to {poor_user[0]};"))
    store = PostgresStore(as_user(database, *poor_user))
    await store.start()

    await execute_all(store, "m", sizes=(3,), times=1)
    await store.stop()


async def test_a_schema_of_a_newer_twophase_is_left_alone(database: Database) -> None:
    await made(database)
    execute(database, "update store_meta set value = 999 where name = 'schema_version'")

    error = await refusal(database.dsn)

    assert isinstance(error, SchemaTooNew)
    assert "999" in error.message


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("drop table history", "history"),
        ("drop function twophase_flush", "twophase_flush"),
        ("delete from store_meta where name = 'schema_version'", "schema_version"),
    ],
)
async def test_half_a_schema_is_not_built_upon(database: Database, damage: str, named: str) -> None:
    await made(database)
    execute(database, damage)

    error = await refusal(database.dsn)

    assert isinstance(error, SchemaMissing)
    assert named in error.message


async def test_tables_of_another_program_are_not_built_upon(database: Database) -> None:
    execute(database, "create table message (id int primary key, text text)")

    error = await refusal(database.dsn)

    assert isinstance(error, NotAStore)
    assert "message" in error.message


async def test_a_migration_that_fails_leaves_nothing_behind(database: Database) -> None:
    """A store's tables are made completely or not at all.

    The next start finds an empty database.
    """
    execute(database, "create table other (gid text)", "create index history_gid on other (gid)")

    await refusal(database.dsn)

    with psycopg.connect(database.dsn) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
    assert tables == [("other",)]
    execute(database, "drop table other")
    await made(database)


async def test_a_role_that_need_not_wait_for_the_disk_is_made_to_wait(database: Database) -> None:
    execute(database, f"alter database {database.name} set synchronous_commit = off")
    store = PostgresStore(database.dsn)
    await store.start()

    writing = await store._reconnecting.connected(store._reconnecting.deadline())

    assert await writing.fetchval("show synchronous_commit") == "on"
    await store.stop()


class _SetByFile(PostgresServer):
    """A server whose `synchronous_commit` comes from its file.

    An option of the command line would outrank the file.
    """

    def command(self, directory: Path, address: Address) -> list[str]:
        return [one for one in super().command(directory, address) if "synchronous_commit" not in one]


async def test_a_reload_of_the_configuration_does_not_end_the_wait_for_the_disk() -> None:
    with running(_SetByFile()) as server:
        database = server.create_database(f"test_{secrets.token_hex(6)}")
        store = PostgresStore(database.dsn)
        await store.start()
        writing = await store._reconnecting.connected(store._reconnecting.deadline())
        with psycopg.connect(database.dsn, autocommit=True) as other:
            other.execute("alter system set synchronous_commit = off")
            other.execute("select pg_reload_conf()")
            async with asyncio.timeout(30):
                while other.execute("show synchronous_commit").fetchone() != ("off",):
                    await asyncio.sleep(0.01)

        await flush(store, prepare("g"))

        assert await writing.fetchval("show synchronous_commit") == "on"
        await store.stop()


def _place(dsn: str) -> psycopg.Connection[Any]:
    """Open a connection, when the server has one to give.

    Connections closed before may count for a moment yet.
    """
    pause = threading.Event()
    for _ in range(600):
        with contextlib.suppress(psycopg.OperationalError):
            return psycopg.connect(dsn)
        pause.wait(0.05)
    raise AssertionError("no place becomes free")


async def test_a_server_that_does_not_wait_for_its_disk_is_refused() -> None:
    settings = {"fsync": "off", "max_connections": "3", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
    with running(PostgresServer(settings=settings)) as server:
        database = server.create_database("unsafe")
        error = await refusal(database.dsn)
        crowd = [_place(database.dsn) for _ in range(3)]
        crowded = await refusal(database.dsn, WAIT_MS)
        for one in crowd:
            one.close()

    assert isinstance(error, UnsafeDurability)
    assert "fsync" in error.message
    assert isinstance(crowded, StoreUnavailable)
    assert "max_connections" in crowded.message


async def test_a_server_older_than_the_oldest_that_is_known_to_do_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No older server is installed.

    So the test moves the bound to this one, and above it.
    """
    assert connection.POSTGRES_OLDEST == 130_000
    with psycopg.connect(database.dsn) as session:
        version = session.info.server_version
    monkeypatch.setattr(connection, "POSTGRES_OLDEST", version)
    await made(database)
    monkeypatch.setattr(connection, "POSTGRES_OLDEST", version + 1)

    error = await refusal(database.dsn)

    assert isinstance(error, ConfigurationError)
    assert f"PostgreSQL {version // 10_000} is too old; 13 or newer" in error.message


async def test_a_read_only_database_is_refused(database: Database) -> None:
    execute(database, f"alter database {database.name} set default_transaction_read_only = on")

    error = await refusal(database.dsn)

    assert isinstance(error, StoreReadOnly)
    assert "read-only" in error.message
