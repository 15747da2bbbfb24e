"""Schema versions only rise, with rows in the tables.

Each step is complete or not done, by one process at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.conformance.postgres.conftest import Join, Raw, somebody_waits_for
from tests.support.items import abort, final, flush, live, prepare
from twophase.core.errors import ConfigurationError, NotAStore, SchemaMissing, SchemaTooNew, StoreUnavailable
from twophase.stores.migrations import Migration
from twophase.stores.postgres import PostgresStore, schema
from twophase.stores.postgres.migrating import migrate_database

NEXT = schema.SCHEMA_VERSION + 1
STEPS = (
    Migration(schema.SCHEMA_VERSION, "this one was taken long ago"),
    Migration(NEXT, "alter table message add column more text not null default 'x'; create table later (x integer);"),
    Migration(NEXT + 1, "insert into later select count(*) from message; alter table later add y integer"),
)


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    """A driver's connection, as the store uses it."""
    made: Any = await asyncpg.connect(url)  # type: ignore[no-untyped-call]
    yield made
    await made.close()


def _version(raw: Raw) -> object:
    return raw.execute("select value from store_meta where name = 'schema_version'").fetchone()


async def test_a_start_makes_the_schema_and_the_next_finds_it(url: str, join: Join, raw: Raw) -> None:
    assert await migrate_database(url) == (0, schema.SCHEMA_VERSION)
    assert await migrate_database(url) == (schema.SCHEMA_VERSION, schema.SCHEMA_VERSION)
    await join()
    assert _version(raw) == (schema.SCHEMA_VERSION,)
    assert 1 + len(schema.migrations()) == schema.SCHEMA_VERSION


async def test_an_empty_schema_becomes_the_newest_step_by_step(connection: Any, raw: Raw) -> None:
    assert await schema.migrate(connection, "x", STEPS) == (0, NEXT + 1)
    assert _version(raw) == (NEXT + 1,)


async def test_steps_behind_the_version_are_taken_with_live_rows_that_go_on(
    join: Join, connection: Any, raw: Raw
) -> None:
    store = await join()
    await flush(store, prepare("old"), prepare("final"))
    await flush(store, abort("final"))

    assert await schema.migrate(connection, "x", STEPS) == (schema.SCHEMA_VERSION, NEXT + 1)

    assert raw.execute("select x, y from later").fetchall() == [(1, None)]
    assert (await live(store, "old")).version == 1
    assert (await flush(store, abort("old"), prepare("new"))).refused == {}
    assert (await final(store, "old")).seq == 2


async def test_a_step_that_fails_leaves_the_version_before_it(connection: Any, raw: Raw) -> None:
    steps = (Migration(NEXT, "create table later (x integer)"), Migration(NEXT + 1, "drop table later; drop table no"))

    with pytest.raises(asyncpg.UndefinedTableError):
        await schema.migrate(connection, "x", steps)

    assert _version(raw) == (NEXT,)
    assert raw.execute("select count(*) from later").fetchone() == (0,)


async def test_nodes_that_start_at_once_make_one_schema(join: Join, raw: Raw) -> None:
    nodes = await asyncio.gather(*(join() for _ in range(4)))

    assert sorted(node.slot for node in nodes) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert _version(raw) == (schema.SCHEMA_VERSION,)


async def test_a_migration_waits_for_the_one_that_runs(url: str, raw: Raw) -> None:
    with raw.transaction():
        raw.execute(b"select pg_advisory_xact_lock(%d, hashtext(current_schema()))" % schema._LOCK)
        migrating = asyncio.create_task(migrate_database(url))
        await somebody_waits_for(raw)
        assert not raw.execute("select from pg_tables where schemaname = current_schema()").fetchall()

    assert await migrating == (0, schema.SCHEMA_VERSION)


async def test_a_migration_that_hangs_is_waited_for_aloud_and_within_a_bound(
    connection: Any, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    with raw.transaction():
        raw.execute(b"select pg_advisory_xact_lock(%d, hashtext(current_schema()))" % schema._LOCK)
        with pytest.raises(StoreUnavailable, match="another process") as caught:
            await schema.migrate(connection, "db/x", lock_wait_s=0.2)
        holder = raw.execute(caught.value.remedy.partition("hangs: ")[2].partition(";")[0].encode()).fetchall()
        assert (raw.info.backend_pid,) in holder, "the remedy finds who holds it"

    assert "db/x: another process migrates the schema" in caplog.text
    assert await schema.migrate(connection, "db/x") == (0, schema.SCHEMA_VERSION)


async def test_a_newer_schema_is_left_alone(url: str, join: Join, raw: Raw) -> None:
    await (await join()).stop()
    raw.execute("update store_meta set value = 999 where name = 'schema_version'")

    with pytest.raises(SchemaTooNew, match="999"):
        await PostgresStore(url).start()
    with pytest.raises(SchemaTooNew):
        await migrate_database(url)


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("drop table history cascade", "history"),
        ("drop function twophase_flush", "twophase_flush"),
        ("delete from store_meta where name = 'schema_version'", "schema_version"),
    ],
)
async def test_half_a_schema_is_not_built_upon(url: str, join: Join, raw: Raw, broken: str, named: str) -> None:
    await (await join()).stop()
    raw.execute(broken.encode())

    for refused in (PostgresStore(url).start, lambda: migrate_database(url)):
        with pytest.raises(SchemaMissing, match=named):
            await refused()


async def test_tables_of_another_program_are_not_built_upon(url: str, raw: Raw) -> None:
    raw.execute("create table message (id integer)")

    with pytest.raises(NotAStore, match="message"):
        await PostgresStore(url).start()


async def test_a_search_path_without_a_schema_is_a_fault_of_the_url(url: str) -> None:
    with pytest.raises(ConfigurationError, match="search_path"):
        await PostgresStore(url.replace("search_path%3Dt", "search_path%3Dnot_")).start()


async def test_a_user_who_may_not_create_tables_is_asked_to_migrate(url: str, raw: Raw) -> None:
    name = raw.execute("select current_schema()").fetchone()[0]  # type: ignore[index]
    raw.execute(f"create role {name} login password 'pw'".encode())
    raw.execute(f"grant usage on schema {name} to {name}".encode())
    poor = f"postgresql://{name}:pw@{url.rpartition('@')[2]}"

    with pytest.raises(SchemaMissing, match="permission denied"):
        await PostgresStore(poor).start()

    await migrate_database(url)
    raw.execute(f"grant select, insert, update, delete on all tables in schema {name} to {name}".encode())
    store = PostgresStore(poor)
    await store.start()
    assert (await flush(store, prepare("g"))).refused == {}
    assert (await store.purge(1, 1)).horizon_ms == 0
    assert await store.adopt(1) == 0
    await store.stop()
    raw.execute(f"drop owned by {name} cascade".encode())
    raw.execute(f"drop role {name}".encode())
