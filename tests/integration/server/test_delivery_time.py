"""A time to deliver at, seen from outside.

The client, a real server that is killed, JSON-RPC and gRPC show it.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import pytest

from tests.integration.server.running import running
from tests.integration.server.test_grpc import Dtm, grpc_url, message
from tests.support.fake_coordinator import Client, get, post
from tests.support.server_process import branch_service, serving
from twophase import AsyncMessage
from twophase.core.lifecycle import State

HOUR_MS = 3_600_000


async def test_a_server_that_is_killed_keeps_the_time_on_both_paths(tmp_path: Path) -> None:
    async with branch_service() as service:
        async with serving(tmp_path) as first:
            at_ms = round(time.time() * 1000) + 6_000
            at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
            steps = {"steps": [{"action": service.url("/in")}], "payloads": ["{}"], "next_cron_time": at}
            asked = {"query_prepared": service.url("/check"), "timeout_to_fail_ms": 1}
            assert (await first.post("submit", gid="plain", **steps)).status == 200
            assert (await first.post("prepare", gid="asked", **steps, **asked)).status == 200
            await service.until_called("/check", "asked")
            service.open.clear()  # so that it stays submitted, however late the test looks
            await first.until_state("asked", "submitted")
            await first.kill()
        service.open.set()
        async with serving(tmp_path) as second:
            for gid in ("plain", "asked"):
                await second.post("submit", gid=gid, **steps)
                await second.until_state(gid, "succeed")
    calls = zip(service.calls, service.called_at_ms, strict=True)
    deliveries = [(gid, called_ms) for (path, gid), called_ms in calls if path == "/in"]
    assert {gid for gid, _ in deliveries} == {"asked", "plain"}
    assert min(called_ms for _, called_ms in deliveries) >= at_ms


async def test_the_client_names_a_time_over_http_and_grpc(tmp_path: Path) -> None:
    async with branch_service() as service, running(tmp_path, grpc_port=0) as server:
        at = datetime.now(UTC) + timedelta(hours=1)
        for gid, url in (("http", server.server.urls[0]), ("grpc", grpc_url(server))):
            await AsyncMessage(url, gid, deliver_at=at, max_rounds=7).add(service.url("/in"), {"a": 1}).submit()
            options = (await server.view(gid)).message.options
            assert options.not_before_ms / 1000 == pytest.approx(at.timestamp(), abs=0.001)
            assert options.not_before_ms / 1000 >= at.timestamp() - 1e-6
            assert options.attempts_max == 7
        server.advance(HOUR_MS - 120_000)
        await AsyncMessage(server.server.urls[0], "between").add(service.url("/other"), {}).submit()
        await server.until("between", State.SUCCEEDED)
        assert [path for path, *_ in service.calls] == ["/other"]
        server.advance(121_000)
        for gid in ("http", "grpc"):
            await server.until(gid, State.SUCCEEDED)


@pytest.mark.parametrize("spelled", ["rfc", "seconds"])
async def test_json_rpc_and_grpc_take_it_as_text_or_number(tmp_path: Path, spelled: str) -> None:
    at_s = int(time.time()) + 3600
    text = datetime.fromtimestamp(at_s, UTC).isoformat() if spelled == "rfc" else str(at_s)
    params = {
        "gid": "rpc",
        "trans_type": "msg",
        "steps": [{"action": "http://127.0.0.1:1/in"}],
        "payloads": ["{}"],
        "next_cron_time": text if spelled == "rfc" else at_s,
    }
    call = msgspec.json.encode({"jsonrpc": "2.0", "id": "1", "method": "submit", "params": params})
    async with running(tmp_path, grpc_port=0) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        answer = msgspec.json.decode((await client.ask(post("/api/json-rpc", call))).body)
        client.close()
        assert answer["error"] is None
        async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
            await Dtm(channel).ask("Submit", **message("grpc", next_cron_time=text))
        for gid in ("rpc", "grpc"):
            view = await server.view(gid)
            assert view.message.options.not_before_ms == at_s * 1000
            assert view.due_ms == pytest.approx(at_s * 1000, abs=60_000)


async def test_a_query_shows_when_it_is_delivered(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
        fields = {"steps": [{"action": "http://127.0.0.1:1/in"}], "payloads": ["{}"], "attempts_max": 4}
        assert (await server.post("submit", gid="g", next_cron_time=at.isoformat(), **fields)).status == 200
        shown = msgspec.json.decode((await server.ask(get("/api/dtmsvr/query?gid=g"))).body)["transaction"]
    assert (shown["not_before"], shown["attempts_max"]) == (f"{at:%Y-%m-%dT%H:%M:%S}.000Z", 4)
    due = datetime.fromisoformat(shown["next_cron_time"])
    assert abs(due - at) < timedelta(minutes=1)
