"""The log of a real server after everything has failed.

It holds no payload, no header's value, no password and no query.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import pytest

from tests.integration.server.test_grpc import Code, Dtm, Refused, message
from tests.integration.server.test_grpc_branches import Bank, fail
from tests.integration.server.test_observability import _scrape
from tests.support.fake_coordinator import post
from tests.support.server_process import ServerProcess, serving

SECRETS = {
    name: f"{name}-hunter2-4111"
    for name in ("payload", "header", "trace", "query", "login", "answer", "details", "custom", "unreadable", "hook")
}


class Echo:
    """A service that answers 500 and repeats its request.

    The answer holds the payload, the headers, and a text of its own.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A server that ends may close its connection before the request.
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            declared = head.lower().partition(b"content-length:")[2].split()
            length = int(declared[0]) if declared else 0
            body = SECRETS["answer"].encode() + head + (await reader.readexactly(length) if length else b"")
            writer.write(b"HTTP/1.1 500 X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            self.calls += 1


@pytest.fixture
async def bank() -> AsyncIterator[Bank]:
    one = Bank()
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    one = Echo()
    service = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = service.sockets[0].getsockname()[1]
    yield one
    service.close()


async def _all_is_said(server: ServerProcess) -> bool:
    """Return True when both messages were given up, and the webhook was not reached."""
    seen = await _scrape(server)
    return seen["twophase_parked_total{}"] == 2 and seen.get("twophase_alerts_total{result=failed}", 0) >= 1


async def test_nothing_that_was_entrusted_to_it_is_in_the_log(tmp_path: Path, echo: Echo, bank: Bank) -> None:
    bank.behaviours["In"] = [fail(Code.UNAVAILABLE, SECRETS["details"]), fail(Code.UNKNOWN, SECRETS["details"])]
    settings = ["retry_first_ms=10", "retry_cap_ms=20", "alert_after=1", "attempts_max=4", "check_back_first_ms=10"]
    settings += [f"alert_webhook=http://me:{SECRETS['hook']}@127.0.0.1:1/in?x={SECRETS['hook']}"]
    arguments = [part for one in settings for part in ("--set", one)]
    said = {
        "steps": [{"action": f"http://127.0.0.1:{echo.port}/in?token={SECRETS['query']}"}],
        "payloads": [msgspec.json.encode({"card": SECRETS["payload"]}).decode()],
        "branch_headers": {"Authorization": SECRETS["header"]},
    }
    check = f"http://127.0.0.1:{echo.port}/check?token={SECRETS['query']}"
    async with serving(tmp_path, *arguments, "--grpc-port", "0", "--log-level", "debug") as server:
        target = server.ready_line.partition("grpc://")[2].split()[0]
        body = msgspec.json.encode({"gid": "http", "trans_type": "msg"} | said)
        traced = post("/api/dtmsvr/submit", body, f"traceparent: {SECRETS['trace']}")
        assert (await server.ask(traced)).status == 200
        asked = {"query_prepared": check, "timeout_to_fail_ms": 1}
        assert (await server.post("prepare", gid="asked", **said, **asked)).status == 200
        login = [{"action": f"http://me:{SECRETS['login']}@bank/in"}]
        refused = [
            await server.post("submit", gid="login", **said | {"steps": login}),
            await server.post("submit", gid="custom", **said, custom_data=SECRETS["custom"]),
            await server.ask(post("/api/dtmsvr/submit", b'{"payloads":["' + SECRETS["unreadable"].encode())),
            await server.post("submit", gid="http", **said | {"payloads": [SECRETS["payload"]]}),
        ]
        async with grpc.aio.insecure_channel(target) as channel:
            fields = message("grpc", bank.url("In"), branch_headers={"authorization": SECRETS["header"]})
            await Dtm(channel).ask("Submit", **fields | {"payloads": [SECRETS["payload"].encode()]})
            grpc_refused: Refused = await Dtm(channel).refused("Submit", **fields | {"custom_data": SECRETS["custom"]})
        async with asyncio.timeout(60):
            while echo.calls < 8 or not await _all_is_said(server):
                await asyncio.sleep(0.02)
        _, errors = await server.terminate()
    assert [response.status for response in refused] == [400, 400, 400, 409]
    assert "branch not done" in errors
    assert "parked" in errors
    assert "an alert did not reach the webhook" in errors
    told = errors + "".join(response.body.decode() for response in refused) + grpc_refused.text
    assert [name for name, secret in SECRETS.items() if secret in told] == []
