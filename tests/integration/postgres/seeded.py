"""One large database a run, and the plans of a store's statements on it.

The plans were made in every state of the statistics. Seeding takes about 20 s, so the first process of the run that
needs the plans makes them and leaves them as a file beside the run's server; the others read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import asyncpg
import msgspec
import psycopg
import uvloop

from tests.conformance.postgres.conftest import somebody_waits_for
from tests.integration.postgres import plans
from tests.integration.postgres.every_statement import execute_all
from tests.integration.postgres.plans import Plan
from tests.servers.database import Database
from tests.servers.postgres import PostgresServer
from twophase.stores.postgres import PostgresStore, connection

NAME = "large"


class Statistics(enum.StrEnum):
    """The statistics that PostgreSQL has about the tables."""

    NONE = "the tables are empty and never were analysed"
    OVERTAKEN = "the tables were filled behind the back of a session that keeps the plans it made before"
    STALE = "the statistics are of nearly empty tables"
    FRESH = "the statistics are right"
    POOLED = "the statistics are right, and the session is a pooler's: without our settings, without kept statements"


_FOLDER = Path(__file__).parent
_LARGE = (_FOLDER / "large.sql").read_text()
_ORPHANS = (_FOLDER / "orphans.sql").read_text()


def plans_by_statistics(server: PostgresServer) -> dict[Statistics, list[Plan]]:
    """Return every different plan of every statement that the store executed."""
    place = Path(server.address.directory).parent
    made = place / "plans.json"
    with (place / "plans.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.write_bytes(msgspec.json.encode(_collect(server.create_database(NAME))))
    return msgspec.json.decode(made.read_bytes(), type=dict[Statistics, list[Plan]])


def _collect(database: Database) -> dict[Statistics, list[Plan]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_in_every_state(database))


async def _in_every_state(database: Database) -> dict[Statistics, list[Plan]]:
    empty = PostgresStore(database.dsn)
    await empty.start()
    await empty.stop()
    _execute(database, *(f"alter table {table} set (autovacuum_enabled = false)" for table in _tables(database)))
    _execute(database, *(f"alter database {NAME} set {name} = '{value}'" for name, value in plans.SETTINGS.items()))
    found = {}
    with _listening() as heard:
        early, late = PostgresStore(database.dsn), PostgresStore(database.dsn)
        await early.start()
        found[Statistics.NONE] = await _plans(database, early, "none", heard)
        _execute(database, "analyze")
        _execute(database, _ORPHANS)
        await execute_all(early, "small")
        _execute(database, _LARGE)
        found[Statistics.OVERTAKEN] = await _plans(database, early, "overtaken", heard)
        await early.stop()
        await late.start()
        found[Statistics.STALE] = await _plans(database, late, "stale", heard)
        _execute(database, "analyze")
        found[Statistics.FRESH] = await _plans(database, late, "fresh", heard)
        await late.stop()
        with mock.patch.multiple(connection, _SETTINGS={}, _STATEMENTS_KEPT=0):
            pooled = PostgresStore(database.dsn)
            await pooled.start()
            found[Statistics.POOLED] = await _plans(database, pooled, "pooled", heard)
            await pooled.stop()
    return found


async def _plans(database: Database, store: PostgresStore, name: str, heard: list[Plan]) -> list[Plan]:
    _execute(database, _ORPHANS)
    heard.clear()
    await execute_all(store, name)
    _execute(database, _ORPHANS)
    with psycopg.connect(database.dsn) as another:
        another.execute("select from message where gid like 'orphan-%' for update")
        adopting = asyncio.create_task(store.adopt(500))
        await somebody_waits_for(another)
    assert await adopting == 100, "rows that somebody changes are waited for, and met again"
    store._reconnecting.drop()  # a lost connection is resolved; only now, since its plans are lost with it
    await store.heartbeat()
    return list({msgspec.json.encode(plan): plan for plan in heard}.values())


@contextlib.contextmanager
def _listening() -> Iterator[list[Plan]]:
    """Collect every plan that PostgreSQL reports to a connection opened in the block."""
    heard: list[Plan] = []
    connect = asyncpg.connect

    def hear(_: object, message: Any) -> None:
        plan = plans.read(message.message)
        if plan is not None:
            heard.append(plan)

    async def connect_and_listen(*arguments: Any, **named: Any) -> Any:
        connection = await connect(*arguments, **named)  # type: ignore[no-untyped-call]
        connection.add_log_listener(hear)
        return connection

    with mock.patch.object(asyncpg, "connect", connect_and_listen):
        yield heard


def _tables(database: Database) -> list[str]:
    with psycopg.connect(database.dsn) as connection:
        found = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
    return [name for (name,) in found]


def _execute(database: Database, *statements: str) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
