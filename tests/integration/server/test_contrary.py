"""A verdict that contradicts the decision is visible to a person.

It is, whichever came first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.integration.server.running import Running, running
from tests.support.server_process import BranchService, branch_service
from twophase.core.lifecycle import State


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, request_timeout_ms=60_000) as one:
        yield one


@pytest.fixture
async def producer() -> AsyncIterator[BranchService]:
    async with branch_service() as one:
        yield one


async def test_a_contrary_verdict_about_a_message_that_is_final_is_an_incident_in_log_and_metrics(
    server: Running, producer: BranchService
) -> None:
    said = {"gid": "g", "trans_type": "msg", "steps": [], "payloads": [], "query_prepared": producer.url("/check")}
    producer.answers["/check"] = 409
    producer.open.clear()
    async with httpx.AsyncClient(base_url=server.server.urls[0]) as http:
        assert (await http.post("/api/dtmsvr/prepare", json=said)).status_code == 200
        server.advance(35_064)
        await producer.until_called("/check", "g")
        assert (await http.post("/api/dtmsvr/submit", json=said)).status_code == 200
        await server.until("g", State.SUCCEEDED)
        assert (await server.view("g")).log == []
        producer.open.set()
        view = await server.until_logged("g")
        assert "twophase_incidents_total 1" in (await http.get("/metrics")).text
    assert (view.state, [str(one.kind) for one in view.log]) == (State.SUCCEEDED, ["incident"])
    assert "check_rolled_back" in view.log[0].error
