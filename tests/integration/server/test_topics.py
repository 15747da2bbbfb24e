"""Topics in every API: dtm's, twophase's own, gRPC, with real calls.

dtm's requests get dtm's answers (recorded from 1.19).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio
import httpx
import msgspec
import pytest
from google.protobuf.message_factory import GetMessageClass

from tests.integration.server.running import Running, running
from tests.support.server_process import BranchService, branch_service
from twophase import Message
from twophase.core.lifecycle import State
from twophase.grpc_wire.messages import Request, encode_request, pool

DTM = "/api/dtmsvr"
OURS = "/api/twophase/topics"
SUCCESS = '{"dtm_result":"SUCCESS"}'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, grpc_port=0) as one:
        yield one


@pytest.fixture
async def http(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.urls[0]) as client:
        yield client


@pytest.fixture
async def service() -> AsyncIterator[BranchService]:
    async with branch_service() as one:
        yield one


async def _said(http: httpx.AsyncClient, path: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the text of dtm's body; twophase's has more fields."""
    answer = await http.request(method, f"{DTM}/{path}")
    body = answer.json() if answer.headers["content-type"].startswith("application/json") else answer.text
    return answer.status_code, body["message"] if isinstance(body, dict) and "message" in body else answer.text


async def test_a_topics_life_is_as_recorded(http: httpx.AsyncClient) -> None:
    one, two = quote("http://127.0.0.1:39001/ok", safe=""), quote("http://127.0.0.1:39001/ok2", safe="")
    recorded = [
        (f"subscribe?topic=&url={one}", 500, "empty topic"),
        ("subscribe?topic=tv_topic&url=", 500, "empty url"),
        (f"subscribe?topic=tv_topic&url={one}&remark=r1", 200, SUCCESS),
        (f"subscribe?topic=tv_topic&url={one}&remark=r1", 500, "this url exists"),
        (f"subscribe?topic=tv_topic&url={two}&remark=", 200, SUCCESS),
        ("queryKV?cat=topics&key=nosuch", 200, '{"kv":[]}'),
        ("scanKV?cat=nosuch", 200, '{"kv":[],"next_position":""}'),
        ("scanKV?", 200, '{"kv":[],"next_position":""}'),
        ("unsubscribe?topic=nosuch&url=x", 500, "no such a topic"),
        ("unsubscribe?topic=&url=x", 500, "empty topic"),
        ("unsubscribe?topic=tv_topic&url=", 500, "empty url"),
        ("unsubscribe?topic=tv_topic&url=nosuch", 500, "no such an url "),
        (f"unsubscribe?topic=tv_topic&url={two}", 200, SUCCESS),
        (f"unsubscribe?topic=tv_topic&url={one}", 200, SUCCESS),
        (f"unsubscribe?topic=tv_topic&url={one}", 500, "this topic is empty"),
    ]
    assert [(path, *await _said(http, path)) for path, _, _ in recorded] == recorded
    empty = (await http.get(f"{DTM}/queryKV?cat=topics&key=tv_topic")).json()["kv"][0]
    assert (empty["k"], empty["v"], empty["version"]) == ("tv_topic", "[]", 4)
    assert await _said(http, "topic/nosuch", "DELETE") == (500, "storage: NotFound")
    assert await _said(http, "topic/tv_topic", "DELETE") == (200, SUCCESS)
    assert await _said(http, "topic/tv_topic", "DELETE") == (500, "storage: NotFound")
    assert await _said(http, "topic/", "DELETE") == (404, "404 page not found")


async def test_topics_are_shown_as_dtm_shows_them(http: httpx.AsyncClient) -> None:
    for path in ("ok&remark=r1", "ok2"):
        await http.get(f"{DTM}/subscribe?topic=tv_topic&url=http://127.0.0.1:39001/{path}")

    shown = (await http.get(f"{DTM}/queryKV?cat=topics&key=tv_topic")).json()
    (row,) = shown["kv"]
    assert list(row) == ["id", "create_time", "update_time", "cat", "k", "v", "version"]
    assert (row["id"], row["cat"], row["k"], row["version"]) == (1, "topics", "tv_topic", 2)
    assert row["v"] == (
        '[{"url":"http://127.0.0.1:39001/ok","remark":"r1"},{"url":"http://127.0.0.1:39001/ok2","remark":""}]'
    )
    assert (await http.get(f"{DTM}/scanKV?cat=topics")).json() == {**shown, "next_position": ""}
    assert (await http.get(f"{DTM}/scanKV?cat=topics&limit=1")).json() == {**shown, "next_position": "1"}
    assert (await http.get(f"{DTM}/scanKV?cat=topics&limit=1&position=1")).json() == {"kv": [], "next_position": ""}


async def test_a_scan_goes_from_the_newest_to_the_oldest_page_by_page(http: httpx.AsyncClient) -> None:
    for name in "abcde":
        await http.get(f"{DTM}/subscribe?topic={name}&url=http://b/FAILURE")
    found, position = "", ""
    while True:
        answer = await http.get(f"{DTM}/scanKV?cat=topics&limit=2&position={position}")
        assert "FAILURE" not in answer.text, "a word that some clients take for a refusal"
        found += "".join(row["k"] for row in answer.json()["kv"])
        position = answer.json()["next_position"]
        if not position:
            break

    assert found == "edcba"
    assert len((await http.get(f"{DTM}/queryKV?cat=topics")).json()["kv"]) == 5
    for query in ("limit=x", "position=abc"):
        answer = await http.get(f"{DTM}/scanKV?cat=topics&{query}")
        assert (answer.status_code, query.partition("=")[0] in answer.json()["message"]) == (400, True)


async def test_what_cannot_be_called_is_refused_by_the_api(http: httpx.AsyncClient) -> None:
    for url in ("nosuch", "ftp://b/in", "http://", "topic://rates", "http://user:pw@b/in", "b:58080/no-method"):
        answer = await http.get(f"{DTM}/subscribe", params={"topic": "rates", "url": url})
        assert (answer.status_code, answer.json()["code"]) == (400, "TP-1000"), url
        assert answer.json()["message"].startswith("url: ")
    assert (await http.get(OURS)).json() == {"revision": 0, "topics": []}


async def test_our_requests_change_nothing_by_a_get(http: httpx.AsyncClient) -> None:
    body = {"topic": "rates/eur", "url": "http://b/in", "remark": "ours"}
    assert (await http.post(f"{OURS}/subscribe", json=body)).text == SUCCESS
    again = await http.post(f"{OURS}/subscribe", json=body)
    assert (again.status_code, again.json()["code"], again.json()["message"]) == (409, "TP-1004", "this url exists")
    assert again.json()["remedy"].startswith("See `twophase topic")

    shown = (await http.get(f"{OURS}/rates%2Feur")).json()
    assert (await http.get(OURS)).json() == {"revision": 1, "topics": [shown]}
    assert (shown["name"], shown["version"], shown["created"] == shown["changed"]) == ("rates/eur", 1, True)
    assert shown["subscribers"] == [{"url": "http://b/in", "remark": "ours"}]

    assert (await http.post(f"{OURS}/unsubscribe", json=body)).text == SUCCESS
    assert (await http.post(f"{OURS}/unsubscribe", json=body)).status_code == 409
    assert (await http.delete(f"{OURS}/rates%2Feur")).text == SUCCESS
    gone = await http.get(f"{OURS}/rates%2Feur")
    assert (gone.status_code, gone.json()["code"]) == (404, "TP-1003")
    refused = await http.delete(f"{OURS}/rates%2Feur")
    assert (refused.status_code, refused.json()["code"]) == (404, "TP-1003")
    assert refused.json()["message"] == "there is no topic 'rates/eur'."


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b'{"topic":7}', b'{"topic":"\xff"}', b"[" * 100_000])
async def test_a_body_that_is_no_subscription_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    for name in ("subscribe", "unsubscribe"):
        answer = await http.post(f"{OURS}/{name}", content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "TP-1000")


async def test_a_message_to_a_topic_reaches_its_subscribers(
    server: Running, http: httpx.AsyncClient, service: BranchService
) -> None:
    for path in ("/ok", "/ok2"):
        await http.get(f"{DTM}/subscribe", params={"topic": "tv_topic", "url": service.url(path)})
    body = {
        "gid": "tv-topic",
        "trans_type": "msg",
        "steps": [{"action": "topic://tv_topic"}],
        "payloads": ['{"amount":30}'],
        "query_prepared": service.url("/check"),
        "protocol": "http",
    }
    assert (await http.post(f"{DTM}/submit", json=body)).status_code == 200

    await server.until("tv-topic", State.SUCCEEDED)
    assert service.calls == [("/ok", "tv-topic"), ("/ok2", "tv-topic")]
    first, second = service.heads
    assert "/ok?branch_id=01-01&gid=tv-topic&op=action&trans_type=msg" in first
    assert "/ok2?branch_id=01-02&gid=tv-topic&op=action&trans_type=msg" in second
    shown = (await http.get(f"{DTM}/query?gid=tv-topic")).json()["branches"]
    assert [(one["branch_id"], one["url"], one["status"], one["bin_data"]) for one in shown] == [
        ("01-01", service.url("/ok"), "succeed", "eyJhbW91bnQiOjMwfQ=="),
        ("01-02", service.url("/ok2"), "succeed", "eyJhbW91bnQiOjMwfQ=="),
    ]


@pytest.mark.parametrize("what", ["prepare", "submit"])
async def test_an_unknown_topic_is_dtms_500_and_nothing_is_stored(http: httpx.AsyncClient, what: str) -> None:
    body = {"gid": "tv-tnf", "trans_type": "msg", "steps": [{"action": "topic://nosuch"}], "payloads": ["{}"]}
    answer = await http.post(f"{DTM}/{what}", json=body)

    assert (answer.status_code, answer.json()["message"]) == (500, "topic not found")
    assert "topic://nosuch" in answer.json()["remedy"]
    assert (await http.get(f"{DTM}/query?gid=tv-tnf")).json() == {"branches": [], "transaction": None}


async def test_the_client_sends_to_topics(server: Running, http: httpx.AsyncClient, service: BranchService) -> None:
    await http.post(f"{OURS}/subscribe", json={"topic": "rates", "url": service.url("/in")})
    url = server.server.urls[0]

    def send() -> str:
        message = Message(url).add("topic://rates", {"eur": 1.1})
        message.submit()
        return message.gid

    gid = await asyncio.to_thread(send)
    await server.until(gid, State.SUCCEEDED)
    assert service.calls == [("/in", gid)]


def _topic(topic: str = "", url: str = "", remark: str = "") -> bytes:
    made: Any = GetMessageClass(pool().FindMessageTypeByName("dtmgimp.DtmTopicRequest"))
    raw: bytes = made(Topic=topic, URL=url, Remark=remark).SerializeToString()
    return raw


async def test_topics_over_grpc(server: Running, http: httpx.AsyncClient, service: BranchService) -> None:
    target = server.server.urls[1].removeprefix("grpc://")
    async with grpc.aio.insecure_channel(target) as channel:

        async def ask(name: str, body: bytes) -> str:
            method: Any = channel.unary_unary(f"/dtmgimp.Dtm/{name}")
            try:
                assert await method(body, timeout=20) == b""
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
            return "OK"

        url = service.url("/in")
        said = [
            await ask("Subscribe", _topic("", url)),
            await ask("Subscribe", _topic("rates", url, "by gRPC")),
            await ask("Subscribe", _topic("rates", url)),
            await ask("Subscribe", _topic("rates", "127.0.0.1:1/bank.Bank/In")),
            await ask("Unsubscribe", _topic("rates", "127.0.0.1:1/bank.Bank/In")),
            await ask("Unsubscribe", _topic("rates", "nosuch")),
        ]
        assert said == [
            "UNKNOWN: empty topic",
            "OK",
            "UNKNOWN: this url exists",
            "OK",
            "OK",
            "UNKNOWN: no such an url ",
        ]
        assert _topic("", "") == b"", "the field of a text that is empty does not travel"
        nothing = {name: await ask(name, b"") for name in ("Subscribe", "Unsubscribe", "DeleteTopic")}
        assert nothing == {
            "Subscribe": "UNKNOWN: empty topic",
            "Unsubscribe": "UNKNOWN: empty topic",
            "DeleteTopic": "UNKNOWN: storage: NotFound",
        }
        assert (await ask("Subscribe", _topic("rates", "ftp://b"))).startswith("INVALID_ARGUMENT: url: ")
        assert (await ask("DeleteTopic", b"\xff\xff")).startswith("INVALID_ARGUMENT: ")
        assert (await http.get(f"{OURS}/rates")).json()["subscribers"] == [{"url": url, "remark": "by gRPC"}]

        steps = msgspec.json.encode([{"action": "topic://rates"}]).decode()
        request = Request(gid="g", trans_type="msg", steps=steps, payloads=[b"\x08\x1e"])
        assert await ask("Submit", encode_request(request)) == "OK"
        await server.until("g", State.SUCCEEDED)
        assert service.calls == [("/in", "g")]

        assert await ask("DeleteTopic", _topic("rates")) == "OK"
        assert await ask("DeleteTopic", _topic("rates")) == "UNKNOWN: storage: NotFound"
        submitted = await ask("Submit", encode_request(msgspec.structs.replace(request, gid="h")))
        assert submitted == "UNKNOWN: topic not found"


async def test_json_rpc_tells_of_a_missing_topic(http: httpx.AsyncClient) -> None:
    params = {"gid": "g", "trans_type": "msg", "steps": [{"action": "topic://nosuch"}], "payloads": ["{}"]}
    call = {"jsonrpc": "2.0", "id": "1", "method": "submit", "params": params}
    said = json.loads((await http.post("/api/json-rpc", json=call)).text)
    assert (said["error"]["code"], said["error"]["message"]) == (-32603, "topic not found")
