"""A node whose clock is an hour off.

The store's clock decides when a message is due, and no promise depends on either clock.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.postgres.ledger import until_at_rest, violations
from tests.integration.postgres.traffic import Told, Traffic
from tests.servers.database import Database
from tests.support import server_process
from tests.support.fake_coordinator import get
from tests.support.server_process import BranchService, serving
from twophase.core.gid import born_ms

pytestmark = pytest.mark.postgres

_SHIFTED = """
import time
real_s, real_ns = time.time, time.time_ns
time.time = lambda: real_s() + {hours} * 3600
time.time_ns = lambda: real_ns() + {hours} * 3600 * 10**9
"""


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """Give the servers that this test starts a clock that is `hours` off."""
    hours: int = request.param
    monkeypatch.setattr(server_process, "_MAIN", _SHIFTED.format(hours=hours) + server_process._MAIN)
    return hours


@pytest.mark.parametrize("shifted", [-1, 1], indirect=True, ids=["an hour behind", "an hour ahead"])
async def test_messages_go_through_and_are_checked_back_in_time(
    tmp_path: Path, database: Database, branches: BranchService, shifted: int
) -> None:
    """The messages that an earlier server stored are due by the database's clock.

    By the later server's own clock they would be due an hour off.
    """
    steps = {"steps": [{"action": branches.url("/in")}], "payloads": ["{}"], "query_prepared": branches.url("/check")}
    async with serving(tmp_path, "--store", database.dsn) as before:
        assert (await before.post("prepare", gid="early", **steps, timeout_to_fail=600)).status == 200
        began = time.monotonic()
        prepared = await before.post("prepare", gid="forgotten", **steps, timeout_to_fail=1)
        assert prepared.status == 200
        prepared_ms = json.loads(prepared.body)["prepared_at"]
        assert abs(prepared_ms / 1000 - time.time()) < 60, "prepare answers with the store's clock (rule 14)"
        await before.terminate()
    async with serving(tmp_path, "--store", database.dsn) as server:
        await branches.until_called("/check", "forgotten")
        assert 1 <= time.monotonic() - began < 600, "not an hour"
        asked = next(head for head in branches.heads if head.split()[1].startswith("/check?"))
        assert parse_qs(urlsplit(asked.split()[1]).query)["prepared_at"] == [str(prepared_ms)]
        await server.until_state("forgotten", "succeed")
        traffic = Traffic(server, branches.url("/in"))
        async with traffic.running():
            await traffic.until_completed(100)
        assert ("/check", "early") not in branches.calls
        called = next(head for head in reversed(branches.heads) if head.startswith("post /in?"))
        oldest_ms = int(called.split("\r\nx-twophase-oldest: ")[1].split("\r\n")[0])
        assert abs(oldest_ms / 1000 - time.time()) < 60, (
            "each call tells by the store's clock what is unfinished (rule 16)"
        )
        assert (await server.post("submit", gid="early", **steps, timeout_to_fail=600)).status == 200
        traffic.told |= {"forgotten": Told(), "early": Told()}
        await until_at_rest(database.dsn)
        assert violations(database.dsn, traffic, branches) == []


@pytest.mark.parametrize("shifted", [-1, 1], indirect=True, ids=["an hour behind", "an hour ahead"])
async def test_ages_and_births_are_by_the_store_s_clock(
    tmp_path: Path, database: Database, branches: BranchService, shifted: int
) -> None:
    async with serving(tmp_path, "--store", database.dsn) as server:
        steps = {"steps": [{"action": branches.url("/in")}], "payloads": ["{}"], "query_prepared": branches.url("/c")}
        assert (await server.post("prepare", gid="waits", **steps)).status == 200
        told = (await server.ask(get("/metrics"))).body.decode()
        age = next(line for line in told.splitlines() if line.startswith("twophase_oldest_prepared_seconds "))
        assert 0 <= float(age.split()[1]) < 60
        gid = json.loads((await server.ask(get("/api/dtmsvr/newGid"))).body)["gid"]
        born = born_ms(gid)
        assert born is not None
        assert abs(born / 1000 - time.time()) < 60
