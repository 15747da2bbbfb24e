"""Every released schema becomes the newest, with unfinished messages in it.

It is then the same as a new one.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import psycopg
import pytest
from psycopg import sql

from tests.conformance.engines import ENGINES, Engine, PostgresEngine
from tests.support.items import SetClock, abort, failed_call, final, flush, live, prepare
from twophase.core.lifecycle import State
from twophase.stores.batch import Batch, Decide, Finish
from twophase.stores.postgres import schema as postgres_schema
from twophase.stores.postgres import statements
from twophase.stores.rows import DecidedBy, Subscriber
from twophase.stores.sqlite import schema as sqlite_schema

SCHEMAS = Path(__file__).parent / "schemas"
AT_MS = 1_699_999_000_000
MESSAGE = {
    "gid": "old",
    "state": 2,
    "node": 1,
    "epoch": 1,
    "version": 3,
    "due_ms": AT_MS + 5,
    "created_ms": AT_MS,
    "decided_ms": 0,
    "decided_by": "",
    "attempts": 2,
    "parked": 0,
    "done": 0,
    "body": b"body",
}
SUBMITTED = MESSAGE | {"gid": "running", "state": 3, "decided_ms": AT_MS, "decided_by": "submit", "done": 1}
ENDED = {
    "node": 1,
    "seq": 9,
    "gid": "ended",
    "state": 4,
    "created_ms": AT_MS,
    "decided_ms": AT_MS,
    "finished_ms": AT_MS,
    "decided_by": "submit",
    "reason": "",
    "attempts": 0,
    "done": 1,
    "body": b"body",
}
SQLITE_NODE = {"id": 1, "epoch": 1, "owner": "", "seq": 9, "commit_count": 4, "seen_ms": AT_MS}
POSTGRES_NODE = {"id": 1, "epoch": 1, "fence": 1, "owner": "", "seq": 9, "flushes": 4, "seen_ms": AT_MS}


class Old(Protocol):
    """A function that makes a store of an older version.

    The store has a prepared, a submitted and a final message.
    """

    def __call__(self, version: int, folder: Path) -> None: ...


def _sqlite(version: int, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as connection:
        connection.executescript((SCHEMAS / f"sqlite_{version}.sql").read_text())
        connection.execute(f"pragma application_id = {sqlite_schema.APPLICATION_ID}")
        connection.execute(f"pragma user_version = {version}")
        rows = {"message": (MESSAGE, SUBMITTED), "history": (ENDED,), "node": (SQLITE_NODE,)}
        for table, row in ((table, row) for table, rows_ in rows.items() for row in rows_):
            places = ", ".join("?" * len(row))
            connection.execute(f"insert into {table} ({', '.join(row)}) values ({places})", tuple(row.values()))


def _postgres(version: int, folder: Path) -> None:
    engine = PostgresEngine()
    engine.make(folder, SetClock())  # the empty schema
    with engine.connect(folder) as connection:
        connection.execute((SCHEMAS / f"postgres_{version}.sql").read_bytes())
        for row in (MESSAGE, SUBMITTED):
            _insert(connection, "message", row | {"parked": False})
        _insert(connection, "history", ENDED)
        _insert(connection, "node", POSTGRES_NODE | {"refused": []})


def _insert(connection: psycopg.Connection[Any], table: str, row: dict[str, object]) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, row))
    places = sql.SQL(", ").join([sql.Placeholder()] * len(row))
    statement = sql.SQL("insert into {} ({}) values ({})").format(sql.Identifier(table), columns, places)
    connection.execute(statement, list(row.values()))


OLD: dict[str, Old] = {"sqlite": _sqlite, "postgres": _postgres}
NEWEST = {"sqlite": sqlite_schema.SCHEMA_VERSION, "postgres": postgres_schema.SCHEMA_VERSION}
RELEASED = [(engine, version) for engine in ENGINES for version in range(1, NEWEST[engine.name])]
released = pytest.mark.parametrize(
    ("engine", "version"), RELEASED, ids=[f"{engine.name}-{version}" for engine, version in RELEASED]
)


def test_every_released_version_is_here() -> None:
    found = {path.name for path in SCHEMAS.glob("*.sql")}

    assert found == {f"{engine.name}_{version}.sql" for engine, version in RELEASED}


@released
async def test_messages_of_an_older_version_go_on(
    engine: Engine, version: int, tmp_path: Path, clock: SetClock
) -> None:
    OLD[engine.name](version, tmp_path)
    store = engine.make(tmp_path, clock)
    await store.start()

    old = await live(store, "old")
    assert (old.state, old.version, old.attempts, old.created_ms, old.body) == (State.PREPARED, 3, 2, AT_MS, b"body")
    assert old.owned or not store.shared
    assert (await live(store, "running")).done == 1
    assert (await final(store, "ended")).seq == 9
    refused = await store.flush(
        Batch(
            [
                Decide("old", 3, 0, DecidedBy.SUBMIT),
                Finish("running", 3, State.SUCCEEDED, done=1),
                prepare("ended"),
                prepare("new"),
            ],
            [failed_call("old")],
        )
    )
    assert refused.refused.keys() == {2}
    assert (await live(store, "old")).state is State.SUBMITTED
    assert (await final(store, "running")).seq == 10
    await store.stop()


@released
async def test_what_came_with_later_versions_works_at_once(
    engine: Engine, version: int, tmp_path: Path, clock: SetClock
) -> None:
    OLD[engine.name](version, tmp_path)
    store = engine.make(tmp_path, clock)
    await store.start()

    assert await store.change_topic(0, "rates", [Subscriber("http://b/in")])
    assert (await flush(store, abort("old", 3))).refused == {}
    await store.stop()


@released
async def test_an_older_store_becomes_what_a_new_one_is(
    engine: Engine, version: int, tmp_path: Path, clock: SetClock
) -> None:
    described: list[object] = []
    for name, make in (("old", lambda folder: OLD[engine.name](version, folder)), ("new", _nothing)):
        folder = tmp_path / name
        folder.mkdir()
        make(folder)
        store = engine.make(folder, clock)
        await store.start()
        await store.stop()
        described.append(DESCRIBE[engine.name](folder))

    assert described[0] == described[1]


async def test_nodes_of_the_version_before_go_on_while_one_has_migrated(
    postgres_server: object, tmp_path: Path, clock: SetClock
) -> None:
    """A running node uses the functions and tables of its version.

    So the newer schema must still have them.
    """
    _postgres(NEWEST["postgres"] - 1, tmp_path)
    engine = PostgresEngine()
    old, new = engine.make(tmp_path, clock), engine.make(tmp_path, clock)
    with engine.connect(tmp_path) as connection:
        before = _functions(connection)
        with (
            mock.patch.object(postgres_schema, "SCHEMA_VERSION", NEWEST["postgres"] - 1),
            mock.patch.object(statements, "FREE_TOPICS", "select $1::int, $2::int"),  # it has no owners of topics
        ):
            await old.start()
        await asyncio.wait_for(new.start(), 60)
        assert before.keys() <= _functions(connection).keys()
    await flush(new, prepare("of a silent node"))
    clock.time_ms += 3_600_000

    assert (await flush(old, prepare("new"), abort("old", 3))).refused == {}
    assert await old.adopt(100) == 1
    await old.stop()
    await new.stop()


def _nothing(folder: Path) -> None:
    """Do nothing: a new store makes itself."""


def _functions(connection: psycopg.Connection[Any]) -> dict[str, str]:
    found = connection.execute(
        "select format('%s(%s) %s', proname, pg_get_function_identity_arguments(oid), prorettype::regtype),"
        " prosrc || proconfig::text from pg_proc"
        " where pronamespace = current_schema()::regnamespace"
    )
    return {name: _without_comments(source) for name, source in found}


def _describe_postgres(folder: Path) -> object:
    with PostgresEngine().connect(folder) as connection:
        columns = connection.execute(
            "select table_name, column_name, data_type, collation_name, is_nullable, column_default, is_identity"
            " from information_schema.columns where table_schema = current_schema() order by 1, 2"
        ).fetchall()
        indexes = connection.execute(
            "select tablename, indexname, regexp_replace(indexdef, 't[0-9a-f]{24}\\.', '') from pg_indexes"
            " where schemaname = current_schema() order by 1, 2"
        ).fetchall()
        options = connection.execute(
            "select relname, reloptions from pg_class where relnamespace = current_schema()::regnamespace"
            " and relkind = 'r' order by 1"
        ).fetchall()
        names = connection.execute("select name, value from store_meta order by name").fetchall()
        return columns, indexes, options, names, _functions(connection)


def _describe_sqlite(folder: Path) -> object:
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        made = connection.execute("select type, name, sql from sqlite_master order by type, name").fetchall()
        names = connection.execute("select name, value from store_meta order by name").fetchall()
        (version,) = connection.execute("pragma user_version").fetchone()
        return [(kind, name, _without_comments(text or "")) for kind, name, text in made], names, version


def _without_comments(text: str) -> str:
    return re.sub(r" ?([(),]) ?", r"\1", " ".join(re.sub(r"--[^\n]*", "", text).split()))


DESCRIBE: dict[str, Callable[[Path], object]] = {"sqlite": _describe_sqlite, "postgres": _describe_postgres}
