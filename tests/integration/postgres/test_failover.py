"""The primary is lost under load and its standby takes over: the same server process goes on, nothing is lost.

The standby is synchronous, so what a flush acknowledged is there too; who sends to it is the driver's affair, by all
hosts in the store's URL.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.traffic import Traffic
from tests.integration.server.pretend import get
from tests.integration.server.process import BranchService, serving
from tests.servers.database import Database
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.standby import PostgresStandby
from twophase.server.app import EXIT_CLEAN

pytestmark = pytest.mark.postgres


def _of_both(primary: Database, standby: Database) -> str:
    hosts = ",".join(f"{one.host}:{one.port}" for one in (primary, standby))
    user = f"{primary.user}:{primary.password}"
    return f"postgresql://{user}@{hosts}/{primary.name}?target_session_attrs=read-write"


async def test_a_promoted_standby_is_gone_on_with_and_nothing_acknowledged_is_lost(
    tmp_path: Path, branches: BranchService
) -> None:
    with running(PostgresServer()) as primary:
        database = primary.create_database(f"test_{secrets.token_hex(6)}")
        with running(PostgresStandby(primary)) as standby:
            standby.synchronous()
            survivor = standby.database(database.name)
            async with serving(tmp_path, "--store", _of_both(database, survivor)) as server:
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
