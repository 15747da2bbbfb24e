"""Behind PgBouncer in transaction mode: every flush may go through another of its connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.traffic import Traffic
from tests.integration.server.process import BranchService, serving
from tests.servers.database import Database
from tests.servers.pgbouncer import PgBouncer
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def pool(own_server: PostgresServer) -> Iterator[PgBouncer]:
    """Two connections of its own a database, so that clients meet each other's."""
    with running(PgBouncer(own_server, {"default_pool_size": "2", "server_round_robin": "1"})) as one:
        yield one


async def test_a_server_works_through_a_pool_that_changes_its_connections(
    tmp_path: Path, pool: PgBouncer, database: Database, branches: BranchService
) -> None:
    async with serving(tmp_path, "--store", pool.database(database.name).dsn) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            await traffic.until_completed(300)
        await until_at_rest(database.dsn)
        assert traffic.refused == {}
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


async def test_nothing_of_a_session_leaks_into_the_pool(tmp_path: Path, pool: PgBouncer, database: Database) -> None:
    import psycopg

    pooled = pool.database(database.name)
    async with serving(tmp_path, "--store", pooled.dsn) as server:
        assert (await server.post("prepare", gid="g")).status == 200
        for _ in range(4):
            with psycopg.connect(pooled.dsn, autocommit=True) as connection:
                for name in ("enable_seqscan", "plan_cache_mode", "statement_timeout", "lock_timeout"):
                    shown = connection.execute(f"select setting, reset_val from pg_settings where name = '{name}'")
                    value, wanted = shown.fetchone() or ("", "")
                    assert value == wanted, name
