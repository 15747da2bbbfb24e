"""Whichever API refuses a request, `twophase_refused_total` counts it, once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec

from tests.integration.server.running import running
from tests.support.fake_coordinator import Client, get, post

ODD = {"gid": "g", "trans_type": "msg", "steps": [{"action": "nowhere"}], "payloads": [""]}


def _post(path: str, body: object) -> bytes:
    return post(path, msgspec.json.encode(body))


# API, request, code
REFUSED = [
    ("prepare", _post("/api/dtmsvr/prepare", ODD), "TP-1000"),
    ("json-rpc", _post("/api/json-rpc", {"jsonrpc": "2.0", "id": "1", "method": "submit", "params": ODD}), "TP-1000"),
    ("query", get("/api/dtmsvr/query"), "TP-1000"),
    ("another type", _post("/api/dtmsvr/registerBranch", {}), "TP-1002"),
    ("dtm's operators", get("/api/dtmsvr/all?limit=x"), "TP-1000"),
    ("dtm's forced stop", _post("/api/dtmsvr/forceStop", {}), "TP-1000"),
    ("messages", get("/api/twophase/messages?limit=0"), "TP-1000"),
    ("a message", get("/api/twophase/messages/nobody"), "TP-2004"),
    ("topics", get("/api/twophase/topics/nosuch"), "TP-1003"),
    ("dtm's topics", get("/api/dtmsvr/subscribe?topic=t"), "TP-1004"),
    ("many", _post("/api/twophase/prepare-many", {"messages": 1}), "TP-1000"),
    ("one of many", _post("/api/twophase/prepare-many", {"messages": [ODD]}), "TP-1000"),
    ("a submit among many", _post("/api/twophase/submit-many", {"gids": ["nobody"]}), "TP-2004"),
    ("import", _post("/api/twophase/import", {"messages": 1}), "TP-1000"),
    ("one of an import", _post("/api/twophase/import", {"messages": [
        {"gid": "g", "state": "prepared", "created_ms": 1, "branches": [{"url": "nowhere", "payload": ""}]},
    ]}), "TP-1000"),
]  # fmt: skip


async def test_a_refusal_of_any_api_is_counted_once(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        for door, request, code in REFUSED:
            before = await _refused(client)
            await client.ask(request)
            after = await _refused(client)
            counted = {one: after[one] - before.get(one, 0) for one in after if after[one] != before.get(one)}
            assert (door, counted) == (door, {code: 1})
        client.close()


async def _refused(client: Client) -> dict[str, float]:
    scrape = (await client.ask(get("/metrics"))).body.decode()
    return {code: float(n) for code, n in re.findall(r'^twophase_refused_total\{code="(.+)"\} (.+)$', scrape, re.M)}
