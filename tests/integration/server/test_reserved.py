"""Names that belong to the coordinator, in addresses and headers.

Every API refuses them, and stores nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import msgspec
import pytest
from google.protobuf.message_factory import GetMessageClass

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import Dtm, Refused, grpc_url, message
from twophase.core.gid import PROBE_GID
from twophase.core.queue_message import gid_of
from twophase.grpc_wire.messages import pool

BAD = "http://127.0.0.1:9/in?gid=7"
ENCODED = "http://127.0.0.1:9/in?%67id=7"
QUEUES_GID = gid_of("", "orders", "01AB")
IDENTIFIED = "http://127.0.0.1:9/in?barrier=7f"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, grpc_port=0) as one:
        yield one


@pytest.fixture
async def http(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.urls[0]) as client:
        yield client


def request(gid: str, url: str = "http://127.0.0.1:9/in", **fields: Any) -> dict[str, Any]:
    steps = [{"action": url}]
    return {"gid": gid, "trans_type": "msg", "steps": steps, "payloads": ["{}"]} | fields


WRONG: list[dict[str, Any]] = [
    request("g", BAD),
    request("g", ENCODED),
    request("g", IDENTIFIED),
    request("g", query_prepared="http://127.0.0.1:9/check?op=1"),
    request("g", query_prepared="http://127.0.0.1:9/check?barrier=1&barrier=2"),
    request("g", branch_headers={"X-Twophase-Oldest": "9999999999999"}),
    request("g", branch_headers={"dtm-gid": "other"}),
    request("g", branch_headers={"Metadata-Flavor": "Google"}),
    request(PROBE_GID),
    request(QUEUES_GID),
]
NAMED = ["address", "encoded", "identity", "check address", "identity twice", "x-twophase", "dtm", "metadata", "probe"]
NAMED.append("a queue's gid")


@pytest.mark.parametrize("wrong", WRONG, ids=NAMED)
async def test_every_wire_refuses_it_by_name_and_stores_nothing(
    server: Running, http: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    for operation in ("prepare", "submit"):
        answer = await http.post(f"/api/dtmsvr/{operation}", json=wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "TP-1000"), answer.text
        call = {"jsonrpc": "2.0", "id": "1", "method": operation, "params": wrong}
        error = (await http.post("/api/json-rpc", json=call)).json()["error"]
        assert error["data"]["code"] == "TP-1000"
    many = await http.post("/api/twophase/prepare-many", json={"messages": [wrong, request("good")]})
    assert [one.get("code", "") for one in many.json()["results"]] == ["TP-1000", ""]
    said = {name: wrong[name] for name in ("query_prepared", "branch_headers") if name in wrong}
    async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
        for method in ("Prepare", "Submit"):
            refused = await Dtm(channel).refused(method, **message(wrong["gid"], wrong["steps"][0]["action"], **said))
            assert refused.metadata["twophase-code"] == "TP-1000"
    assert await server.server.coordinator.query(wrong["gid"]) is None
    assert await server.server.coordinator.query("good") is not None


async def test_an_import_goes_on_and_names_each_message_that_it_refuses(
    server: Running, http: httpx.AsyncClient
) -> None:
    def taken(gid: str, url: str, **fields: Any) -> dict[str, Any]:
        return {"gid": gid, "state": "submitted", "branches": [{"url": url}], **fields}

    messages = [
        taken("address", BAD),
        taken("header", "http://127.0.0.1:9/in", branch_headers={"X_Twophase_Oldest": "1"}),
        taken("check", "http://127.0.0.1:9/in", query_prepared="http://127.0.0.1:9/check?trans_type=msg"),
        taken(PROBE_GID, "http://127.0.0.1:9/in"),
        taken(QUEUES_GID, "http://127.0.0.1:9/in"),
        taken("good", "http://127.0.0.1:9/in"),
    ]

    answer = await http.post("/api/twophase/import", json={"messages": messages, "never_taken": True})

    results = answer.json()["results"]
    assert [one["outcome"] for one in results] == ["refused"] * 5 + ["copied"]
    assert ["'gid'" in results[0]["message"], "x-twophase-" in results[1]["message"]] == [True, True]
    assert "'trans_type'" in results[2]["message"]


async def test_the_refusal_of_a_queues_gid_says_what_to_do_and_similar_gids_are_taken(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/dtmsvr/submit", json=request(QUEUES_GID))
    assert answer.json()["remedy"] == "Use another gid; nothing was stored."
    assert "reserved" in answer.json()["message"]
    for gid in ("queue-17", "queue-" + "z" * 32, QUEUES_GID + "0", QUEUES_GID.upper()):
        assert (
            await http.post("/api/dtmsvr/prepare", json=request(gid, query_prepared="http://127.0.0.1:9/c"))
        ).is_success


async def test_no_topic_is_subscribed_to_by_such_an_address(server: Running, http: httpx.AsyncClient) -> None:
    for url in (BAD, ENCODED, IDENTIFIED):
        by_dtm = await http.get("/api/dtmsvr/subscribe", params={"topic": "t", "url": url})
        ours = await http.post("/api/twophase/topics/subscribe", json={"topic": "t", "url": url})
        assert [one.json()["code"] for one in (by_dtm, ours)] == ["TP-1000", "TP-1000"]
    topic = GetMessageClass(pool().FindMessageTypeByName("dtmgimp.DtmTopicRequest"))
    async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
        with pytest.raises(Refused):
            await Dtm(channel).raw("Subscribe", topic(Topic="t", URL="b:1/p.S/M?op=1").SerializeToString())
    assert msgspec.json.decode((await http.get("/api/twophase/topics")).content)["topics"] == []
