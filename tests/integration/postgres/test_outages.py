"""The database becomes unreachable under load, and returns.

Requests wait, then get 503; nothing is lost, and nothing is restarted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.traffic import Traffic
from tests.servers.database import Database
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.support.fake_coordinator import get
from tests.support.server_process import BranchService, ServerProcess, serving
from twophase.server.app import EXIT_CLEAN

pytestmark = pytest.mark.postgres

UNAVAILABLE = "TP-4009"
WAIT_S = 5.0
"""Time that a request waits for the database before it is answered 503."""
SHORT_S = 2.0
"""Length of an outage that every request waits out.

It leaves a busy machine time for the database's answers behind it.
"""
SLACK_S = 4.5
"""Time that a busy machine may add: less than a second wait."""


async def _all_is_well(server: ServerProcess, database: Database, traffic: Traffic, branches: BranchService) -> None:
    """Assert that the same process kept every promise, and still ends cleanly."""
    await until_at_rest(database.dsn)
    assert violations(database.dsn, traffic, branches) == []
    assert (await server.ask(get("/health/ready"))).status == 200
    code, errors = await server.terminate()
    assert code == EXIT_CLEAN
    assert "Traceback" not in errors


@pytest.mark.parametrize("outage", [PostgresServer.crash, PostgresServer.shut_down])
async def test_a_database_that_went_down_and_came_back_is_used_again(
    tmp_path: Path,
    own_server: PostgresServer,
    database: Database,
    branches: BranchService,
    outage: Callable[[PostgresServer], None],
) -> None:
    async with serving(tmp_path, "--store", database.dsn) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            for _ in range(2):
                await traffic.until_completed(200)
                await asyncio.to_thread(outage, own_server)
                await asyncio.to_thread(own_server.restart)
            await traffic.until_completed(200)
        assert traffic.slowest_s < WAIT_S + SLACK_S
        await _all_is_well(server, database, traffic, branches)


async def test_while_the_database_is_down_requests_wait_then_get_503_until_it_is_back(
    tmp_path: Path, own_server: PostgresServer, database: Database, branches: BranchService
) -> None:
    async with serving(tmp_path, "--store", database.dsn) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            await traffic.until_completed(100)
            await asyncio.to_thread(own_server.crash)
            await traffic.until_refused(UNAVAILABLE)
            assert (await server.ask(get("/health/live"))).status == 200
            await asyncio.to_thread(own_server.restart)
            await traffic.until_completed(100)
        assert traffic.reasons.keys() == {UNAVAILABLE}, traffic.reasons
        assert traffic.slowest_s < WAIT_S + SLACK_S
        await _all_is_well(server, database, traffic, branches)


async def test_a_short_partition_is_waited_out_without_a_refusal(
    tmp_path: Path, dsn_through_proxy: str, proxy: Proxy, database: Database, branches: BranchService
) -> None:
    async with serving(tmp_path, "--store", dsn_through_proxy) as server:
        traffic = Traffic(server, branches.url("/in"))
        away_s: list[float] = []
        async with traffic.running():
            for _ in range(3):
                await traffic.until_completed(100)
                began_s = time.monotonic()
                proxy.partition()
                assert await asyncio.to_thread(proxy.holds.wait, 60)
                await asyncio.sleep(0.3)  # the length of the outage, which the test is about
                proxy.heal()
                away_s.append(time.monotonic() - began_s)
            await traffic.until_completed(100)
        assert traffic.refused == {} or max(away_s) > SHORT_S
        await _all_is_well(server, database, traffic, branches)


async def test_a_long_partition_is_answered_503_within_the_bound_and_healed_without_a_restart(
    tmp_path: Path, dsn_through_proxy: str, proxy: Proxy, database: Database, branches: BranchService
) -> None:
    async with serving(tmp_path, "--store", dsn_through_proxy) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            await traffic.until_completed(100)
            proxy.partition()
            await traffic.until_refused(UNAVAILABLE)
            proxy.heal()
            await traffic.until_completed(100)
        assert traffic.reasons.keys() == {UNAVAILABLE}, traffic.reasons
        assert traffic.slowest_s < WAIT_S + SLACK_S
        await _all_is_well(server, database, traffic, branches)


async def test_connections_that_are_reset_again_and_again_lose_nothing(
    tmp_path: Path, dsn_through_proxy: str, proxy: Proxy, database: Database, branches: BranchService
) -> None:
    async with serving(tmp_path, "--store", dsn_through_proxy) as server:
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            for _ in range(20):
                await traffic.until_completed(15)
                proxy.cut()
            await traffic.until_completed(15)
        assert traffic.refused == {}
        await _all_is_well(server, database, traffic, branches)
