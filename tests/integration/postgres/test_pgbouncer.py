"""The store behind PgBouncer in transaction mode.

Every flush may go through another of its connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.refusals import execute, refusal
from tests.integration.postgres.test_outages import SHORT_S, SLACK_S, UNAVAILABLE, WAIT_S, _all_is_well
from tests.integration.postgres.traffic import Traffic
from tests.servers.database import Database
from tests.servers.pgbouncer import PgBouncer
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.support.items import flush, live, prepare
from tests.support.server_process import BranchService, ServerProcess, serving
from tests.support.waiting import until
from twophase.core.errors import ConfigurationError, StoreUnavailable
from twophase.stores.postgres import PostgresStore, connection

pytestmark = pytest.mark.postgres


_PRODUCERS = 8
IGNORED = [*connection._SETTINGS, "statement_timeout"]


@pytest.fixture(scope="module")
def deaf_pool(own_server: PostgresServer) -> Iterator[PgBouncer]:
    """A pool with one connection a database, which ignores a session's settings.

    It would refuse them without this configuration.
    """
    settings = {"default_pool_size": "1", "ignore_startup_parameters": ", ".join(IGNORED)}
    with running(PgBouncer(own_server, settings)) as one:
        yield one


@pytest.fixture(scope="module")
def pool(own_server: PostgresServer) -> Iterator[PgBouncer]:
    """A pool with two connections a database, so that clients meet each other's."""
    with running(PgBouncer(own_server, {"default_pool_size": "2", "server_round_robin": "1"})) as one:
        yield one


async def test_a_server_works_through_a_pool_that_changes_its_connections(
    tmp_path: Path, pool: PgBouncer, database: Database, branches: BranchService
) -> None:
    async with serving(tmp_path, "--store", pool.database(database.name).dsn) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running(_PRODUCERS):
            await traffic.until_completed(300)
        await until_at_rest(database.dsn)
        # A busy machine may delay one flush beyond the time that the store waits.
        assert set(traffic.refused) <= {StoreUnavailable.code}, traffic.reasons
        assert traffic.refused.total() <= _PRODUCERS, traffic.reasons
        assert violations(database.dsn, traffic, branches) == []
        assert await server.state("m-1") == "succeed"


async def test_three_servers_share_one_pool(
    tmp_path: Path, pool: PgBouncer, database: Database, branches: BranchService
) -> None:
    url = pool.database(database.name).dsn
    async with (
        serving(tmp_path, "--store", url) as one,
        serving(tmp_path, "--store", url) as two,
        serving(tmp_path, "--store", url) as three,
    ):
        traffics = [Traffic(server, branches.url("/in"), f"n{index}") for index, server in enumerate((one, two, three))]
        async with traffics[0].running(4), traffics[1].running(4), traffics[2].running(4):
            for traffic in traffics:
                await traffic.until_completed(100)
        await until_at_rest(database.dsn)
        for traffic in traffics[1:]:
            traffics[0].told |= traffic.told
            traffics[0].unexpected += traffic.unexpected
        assert violations(database.dsn, traffics[0], branches) == []


async def _prepares(server: ServerProcess) -> bool:
    """Return True for a message on disk.

    A busy machine may delay the first connection beyond the time that a flush waits.
    """
    answer = await server.post("prepare", gid="g")
    assert answer.status in {200, 503}, answer
    return answer.status == 200


async def test_nothing_of_a_session_leaks_into_the_pool(tmp_path: Path, pool: PgBouncer, database: Database) -> None:
    pooled = pool.database(database.name)
    async with serving(tmp_path, "--store", pooled.dsn) as server:
        await until(lambda: _prepares(server))
        for _ in range(4):
            with psycopg.connect(pooled.dsn, autocommit=True) as connection:
                for name in ("enable_seqscan", "plan_cache_mode", "statement_timeout", "lock_timeout"):
                    shown = connection.execute(f"select setting, reset_val from pg_settings where name = '{name}'")
                    value, wanted = shown.fetchone() or ("", "")
                    assert value == wanted, name


async def test_a_pool_that_ignores_our_settings_is_noticed_and_nothing_is_left_in_it(
    deaf_pool: PgBouncer, database: Database
) -> None:
    """A prepared statement's name left in the pool would stop the next process.

    Each process numbers its statements from 1.
    """
    pooled = deaf_pool.database(database.name)
    store = PostgresStore(pooled.dsn)
    await store.start()
    assert (await flush(store, prepare("g"))).refused == {}
    assert await store.get("g") == await live(store, "g")
    await store.stop()

    with psycopg.connect(pooled.dsn, autocommit=True) as session:
        assert session.execute("show plan_cache_mode").fetchone() == ("auto",), "the settings were ignored"
        left = {statement for (statement,) in session.execute("select statement from pg_prepared_statements")}
        driver_s = {"SELECT pg_catalog.pg_is_in_recovery()"} if session.info.server_version < 140_000 else set()
        assert left <= driver_s


async def test_a_name_left_in_the_pool_stops_no_client(
    deaf_pool: PgBouncer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before PostgreSQL 14 the driver asks by a named statement for the primary.

    The test makes that name up.
    """
    real = connection._open
    kept: list[int] = []

    async def stumbles(url: str, settings: dict[str, str], timeout_s: float, statements_kept: int) -> Any:
        kept.append(statements_kept)
        if statements_kept:
            raise asyncpg.DuplicatePreparedStatementError('prepared statement "__asyncpg_stmt_1__" already exists')
        return await real(url, settings, timeout_s, statements_kept)

    monkeypatch.setattr(connection, "_open", stumbles)
    made = await connection.connect(deaf_pool.database(database.name).dsn, 5_000)

    assert await made.fetchval("select 7") == 7
    assert kept == [100, 0]
    await made.close()


async def test_behind_a_pool_the_database_itself_must_say_read_committed(pool: PgBouncer, database: Database) -> None:
    execute(database, f"alter database {database.name} set default_transaction_isolation = 'repeatable read'")

    error = await refusal(pool.database(database.name).dsn)

    assert isinstance(error, ConfigurationError)
    assert "default_transaction_isolation" in error.message


@pytest.fixture
def frail_pool(own_server: PostgresServer) -> Iterator[PgBouncer]:
    """A pool that may be killed.

    After a database's refusal it tries again in a second, not in 15.
    """
    with running(PgBouncer(own_server, {"default_pool_size": "4", "server_login_retry": "1"})) as one:
        yield one


async def test_a_pool_and_the_database_behind_it_go_down_in_turn_and_are_used_again(
    tmp_path: Path, own_server: PostgresServer, frail_pool: PgBouncer, database: Database, branches: BranchService
) -> None:
    """The pool returns at once; the database only after requests were answered 503.

    The server is never restarted.
    """
    async with serving(tmp_path, "--store", frail_pool.database(database.name).dsn) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            await traffic.until_completed(100)
            began_s = time.monotonic()
            await asyncio.to_thread(frail_pool.crash)
            await asyncio.to_thread(frail_pool.restart)
            away_s = time.monotonic() - began_s
            await traffic.until_completed(100)
            assert traffic.refused == {} or away_s > SHORT_S
            await asyncio.to_thread(own_server.crash)
            await traffic.until_refused(UNAVAILABLE)
            await asyncio.to_thread(own_server.restart)
            await traffic.until_completed(100)
        assert traffic.reasons.keys() == {UNAVAILABLE}, traffic.reasons
        assert traffic.slowest_s < WAIT_S + SLACK_S
        await _all_is_well(server, database, traffic, branches)
