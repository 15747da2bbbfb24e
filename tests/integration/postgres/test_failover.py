"""The primary is lost under load, and its standby takes over.

The same server process continues, and nothing is lost. The standby is synchronous, so it has what a flush acknowledged.
No node believes a standby that is behind, and a host that does not answer hides none of the others in the store's URL.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path

import psycopg
import pytest
from asyncpg.exceptions import ReadOnlySQLTransactionError

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.refusals import execute, made
from tests.integration.postgres.traffic import Traffic
from tests.servers.database import Database
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.standby import PostgresStandby
from tests.support.fake_coordinator import get
from tests.support.hurry import in_a_hurry
from tests.support.items import flush, prepare
from tests.support.server_process import BranchService, serving
from tests.support.waiting import until
from twophase.core.errors import StoreError
from twophase.server.app import EXIT_CLEAN
from twophase.stores.postgres import PostgresStore
from twophase.stores.postgres.connection import connect

pytestmark = pytest.mark.postgres


def _of_all(database: Database, *ports: int) -> str:
    hosts = ",".join(f"{database.host}:{port}" for port in ports)
    return f"postgresql://{database.user}:{database.password}@{hosts}/{database.name}"


def _gids(database: Database) -> set[str]:
    with psycopg.connect(database.dsn) as connection:
        return {gid for (gid,) in connection.execute("select gid from message")}


async def test_a_promoted_standby_is_used_again_and_nothing_acknowledged_is_lost(
    tmp_path: Path, branches: BranchService
) -> None:
    with running(PostgresServer()) as primary:
        database = primary.create_database(f"test_{secrets.token_hex(6)}")
        with running(PostgresStandby(primary)) as standby:
            standby.synchronous()
            survivor = standby.database(database.name)
            async with serving(tmp_path, "--store", _of_all(database, database.port, survivor.port)) as server:
                traffic = Traffic(server, branches.url("/in"))
                async with traffic.running():
                    await traffic.until_completed(200)
                    await asyncio.to_thread(primary.crash)
                    await asyncio.to_thread(standby.promote)
                    await traffic.until_completed(200)
                await until_at_rest(survivor.dsn)
                assert violations(survivor.dsn, traffic, branches) == []
                assert (await server.ask(get("/health/ready"))).status == 200
                code, errors = await server.terminate()
                assert code == EXIT_CLEAN
                assert "Traceback" not in errors


async def test_what_a_promoted_standby_lacks_is_reported_by_the_node_that_wrote_it(tmp_path: Path) -> None:
    message = {"trans_type": "msg", "steps": [{"action": "http://127.0.0.1:9/in"}], "payloads": ["{}"]}
    with running(PostgresServer()) as primary:
        database = primary.create_database(f"test_{secrets.token_hex(6)}")
        with running(PostgresStandby(primary)) as standby:
            survivor = standby.database(database.name)
            async with serving(tmp_path, "--store", _of_all(database, database.port, survivor.port)) as server:
                await server.post("prepare", gid="kept", **message)
                await until(lambda: "kept" in _gids(survivor))
                await asyncio.to_thread(standby.cut_off)
                assert (await server.post("prepare", gid="lost", **message)).status == 200
                await asyncio.to_thread(primary.crash)
                await asyncio.to_thread(standby.promote)

                async def is_fenced() -> bool:
                    return b"twophase_fenced_total 1" in (await server.ask(get("/metrics"))).body

                await until(is_fenced)
                assert (await server.state("kept"), await server.state("lost")) == ("prepared", None)
                _, errors = await server.terminate()
    [fenced] = [json.loads(line) for line in errors.splitlines() if '"fenced: ' in line]
    assert "the database has lost flushes" in fenced["what"]


async def test_a_standby_that_is_behind_is_never_asked(
    own_server: PostgresServer, database: Database, proxy: Proxy
) -> None:
    await made(database)
    with running(PostgresStandby(own_server)) as standby:
        behind = standby.database(database.name)
        execute(behind, "select pg_wal_replay_pause()")
        store = PostgresStore(_of_all(database, proxy.port, behind.port), outage_wait_ms=30_000)
        await store.start()
        await flush(store, prepare("g"))
        proxy.refuse()
        with pytest.raises(StoreError), in_a_hurry(store, 2_000):
            await store.moved([("g", 1)])
        proxy.heal()
        assert await store.moved([("g", 1)]) == set()
        await store.stop()

        for asked in ("", "?target_session_attrs=any"):
            other = PostgresStore(_of_all(database, behind.port, proxy.port) + asked)
            await other.start()
            assert (await flush(other, prepare("g"))).refused == {0: await other.get("g")}
            await other.stop()

        asked_for = f"{_of_all(database, behind.port)}?target_session_attrs=standby"
        for url in (_of_all(database, behind.port), asked_for):
            with pytest.raises(ReadOnlySQLTransactionError):
                await connect(url, 5_000)


async def test_a_host_that_is_silent_does_not_hide_the_next(database: Database, proxy: Proxy) -> None:
    proxy.partition()
    store = PostgresStore(_of_all(database, proxy.port, database.port), outage_wait_ms=10_000)

    await store.start()

    assert (await flush(store, prepare("g"))).refused == {}
    await store.stop()
