"""A request that cannot work is refused by every API.

The refusal names field, limit and remedy. `tests/unit/server/test_decode.py` has the table of what every field may be;
here the same faults come through HTTP, JSON-RPC and gRPC to a whole server, which keeps nothing of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from benchmarks.load.http2 import Http2Connection, head
from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import Code, Dtm, grpc_url, method
from tests.support.fake_coordinator import Client, Response, get, post

URL = "http://127.0.0.1:1/in"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, grpc_port=0) as one:
        yield one


async def _ask(server: Running, request: bytes) -> Response:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        return await client.ask(request)
    finally:
        client.close()


def _message(**fields: Any) -> dict[str, Any]:
    said = {"gid": "g", "trans_type": "msg", "steps": [{"action": URL}], "payloads": ["{}"]} | fields
    return {name: value for name, value in said.items() if value is not None}


# the fault: fields, then what the refusal must name
FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("gid too long", {"gid": "g" * 129}, "gid is 129 bytes, at most 128 are allowed"),
    ("gid empty", {"gid": ""}, "gid is empty"),
    ("gid with a control character", {"gid": "a\nb"}, "gid contains a control"),
    ("another type", {"trans_type": "saga"}, "trans_type is 'saga', only 'msg'"),
    ("no scheme", {"query_prepared": "bank/check"}, "query_prepared: "),
    ("an unknown scheme", {"steps": [{"action": "ftp://bank/in"}]}, "steps[0].action: no destination for 'ftp'"),
    ("no host", {"steps": [{"action": "http:///in"}]}, "steps[0].action: bad_url"),
    ("a port beyond all", {"steps": [{"action": "http://bank:99999/in"}]}, "steps[0].action: bad_url"),
    ("a blank in the host", {"steps": [{"action": "http://ba nk/in"}]}, "steps[0].action: bad_url"),
    ("a login", {"steps": [{"action": "http://me:pw@bank/in"}]}, "user names and passwords in URLs are not allowed"),
    ("no method", {"steps": [{"action": "grpc://bank:1"}]}, "write grpc://host:port/package.Service/Method"),
    ("too long an address", {"steps": [{"action": "http://b/" + "x" * 2048}]}, "url is 2057 bytes, at most 2048"),
    ("too many branches", {"steps": [{"action": URL}] * 64, "payloads": ["{}"] * 64}, "branches is 64 branches, at"),
    ("too few payloads", {"payloads": []}, "payloads: there are 0 for 1 steps, one each is needed"),
    ("too large a payload", {"payloads": ["x" * ((1 << 20) + 1)]}, "payload is 1048577 bytes, at most 1048576"),
    ("a timeout beyond the limit", {"request_timeout": 601}, "request_timeout is 601000 ms, at most 600000"),
    ("a negative delay", {"custom_data": '{"delay":-1}'}, "delay is negative"),
    ("custom data", {"custom_data": "hello"}, 'custom_data: only JSON such as {"delay": seconds}'),
    ("a header's name", {"branch_headers": {"x y": "1"}}, "branch_headers: 'x y'"),
    ("a header of the connection", {"branch_headers": {"Keep-Alive": "5"}}, "'Keep-Alive' belongs to the connection"),
    ("too many headers", {"branch_headers": {f"x{n}": "" for n in range(65)}}, "branch_headers is 65 headers, at"),
    ("a durability", {"durability": "maybe"}, "durability is 'maybe', 'submit' or 'check-back' is needed"),
    ("no one to ask", {"durability": "check-back"}, "needs query_prepared"),
    ("a time", {"next_cron_time": "tomorrow"}, "next_cron_time is 'tomorrow', not a time; give RFC 3339"),
    ("a far time", {"next_cron_time": "2099-01-01T00:00:00Z"}, "next_cron_time is"),
    ("attempts", {"attempts_max": -1}, "attempts_max is negative"),
]  # fmt: skip
_NAMES = [name for name, _, _ in FAULTS]


@pytest.mark.parametrize("route", ["prepare", "submit"])
@pytest.mark.parametrize(("fields", "named"), [row[1:] for row in FAULTS], ids=_NAMES)
async def test_http_refuses_it_by_name(server: Running, route: str, fields: dict[str, Any], named: str) -> None:
    response = await _ask(server, post(f"/api/dtmsvr/{route}", msgspec.json.encode(_message(**fields))))
    said = msgspec.json.decode(response.body)
    assert response.status == 400
    assert named in said["message"]
    assert said["code"].startswith("TP-1")
    assert said["remedy"]
    assert await server.server.coordinator.query("g") is None


@pytest.mark.parametrize(("fields", "named"), [row[1:] for row in FAULTS], ids=_NAMES)
async def test_json_rpc_refuses_it_by_name(server: Running, fields: dict[str, Any], named: str) -> None:
    call = {"jsonrpc": "2.0", "id": "1", "method": "prepare", "params": _message(**fields)}
    response = await _ask(server, post("/api/json-rpc", msgspec.json.encode(call)))
    error = msgspec.json.decode(response.body)["error"]
    assert (response.status, error["code"]) == (200, -32603)
    assert named in error["message"]
    assert error["data"]["remedy"]
    assert await server.server.coordinator.query("g") is None


@pytest.mark.parametrize(("fields", "named"), [row[1:] for row in FAULTS], ids=_NAMES)
async def test_grpc_refuses_it_by_name(server: Running, fields: dict[str, Any], named: str) -> None:
    said = _message(**fields)
    said["steps"] = msgspec.json.encode(said["steps"]).decode()
    said["payloads"] = [payload.encode() for payload in said["payloads"]]
    async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
        refused = await Dtm(channel).refused("Prepare", **said)
    expected = Code.UNIMPLEMENTED if "trans_type" in fields else Code.INVALID_ARGUMENT
    assert refused.code is expected
    assert named in refused.text
    assert refused.metadata["twophase-remedy"]
    assert await server.server.coordinator.query("g") is None


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"gid=g&trans_type=msg", "application/x-www-form-urlencoded"),
        (b'--b\r\ncontent-disposition: form-data; name="gid"\r\n\r\ng\r\n--b--', "multipart/form-data; boundary=b"),
        (b"<gid>g</gid>", "application/xml"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "application/json"),
        (b"\x0a\x01g", "application/grpc"),
        (b"", "application/json"),
        ("{}".encode("utf-16"), "application/json; charset=utf-16"),
    ],
    ids=["form", "multipart", "xml", "gzip", "protobuf", "nothing", "utf-16"],
)
@pytest.mark.parametrize("path", ["/api/dtmsvr/prepare", "/api/dtmsvr/submit", "/api/dtmsvr/abort", "/api/json-rpc"])
async def test_a_body_that_is_no_json_is_refused_whatever_it_calls_itself(
    server: Running, path: str, body: bytes, content_type: str
) -> None:
    response = await _ask(server, post(path, body, f"Content-Type: {content_type}"))
    said = msgspec.json.decode(response.body)
    text = said["error"]["message"] if path == "/api/json-rpc" else said["message"]
    assert response.status == 400
    assert "JSON" in text or "json" in text or "UTF-8" in text


async def test_json_is_read_whatever_content_type_a_client_gives_it(server: Running) -> None:
    """dtm does the same: several of its clients name no content type, or a wrong one."""
    request = post("/api/dtmsvr/submit", msgspec.json.encode(_message()), "Content-Type: text/plain")
    assert (await _ask(server, request)).status == 200


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xff\xff", b"\x0a\x05g", b"\x0a\x01\xff", b"\x1a\x02\x08\xff\xff", b"not protobuf", b"{}"],
    ids=["tag", "cut off", "no UTF-8", "inner", "text", "JSON"],
)
@pytest.mark.parametrize("name", ["Prepare", "Submit", "Abort"])
async def test_broken_protobuf_is_refused_in_words(server: Running, name: str, raw: bytes) -> None:
    async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(channel, f"/dtmgimp.Dtm/{name}")(raw, timeout=20)
    assert caught.value.code() in {Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED}
    assert caught.value.details()


@pytest.mark.parametrize("path", ["/dtmgimp.Dtm/Registerbranch", "/dtmgimp.dtm/Submit", "/x.Y/Z", "/"])
async def test_an_unknown_grpc_method_is_refused_before_its_message_is_read(server: Running, path: str) -> None:
    async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(channel, path)(b"\xff", timeout=20)
    assert caught.value.code() is Code.UNIMPLEMENTED


class _Told:
    def __init__(self) -> None:
        self.refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(self, refusal: str) -> None:
        self.refusal.set_result(refusal)

    def cut_off(self) -> None:
        self.refusal.set_result("cut off")


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", "text/plain"])
@pytest.mark.parametrize("name", ["Prepare", "Submit", "Abort", "Subscribe"])
async def test_a_body_that_is_no_grpc_message_is_refused_with_what_is_needed(
    server: Running, name: str, content_type: str
) -> None:
    target = grpc_url(server).removeprefix("grpc://")
    host, port = target.rsplit(":", 1)
    connection, told = Http2Connection(lambda _lost: None), _Told()
    await asyncio.get_running_loop().create_connection(lambda: connection, host, int(port))
    await connection.ready
    block = head(f"/dtmgimp.Dtm/{name}", target, content_type)
    connection.call(block, msgspec.json.encode(_message()), told)
    async with asyncio.timeout(60):
        refusal = await told.refusal
    connection.cut()
    needed = f"content-type is '{content_type}': a gRPC message (content-type application/grpc, "
    assert refusal.startswith(f"INVALID_ARGUMENT {needed}"[:120])
    assert await server.server.coordinator.query("g") is None


async def test_http_1_at_the_grpc_port_is_ended_and_the_port_serves_on(server: Running) -> None:
    target = grpc_url(server).removeprefix("grpc://")
    reader, writer = await asyncio.open_connection(*target.rsplit(":", 1))
    writer.write(get("/api/ping"))
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    assert b"pong" not in answer
    async with grpc.aio.insecure_channel(target) as channel:
        assert await Dtm(channel).ask("NewGid")


@pytest.mark.parametrize("path", ["/api/dtmsvr/nosuch", "/api/dtmsvr/prepare/x", "/nosuch"])
async def test_an_unknown_path_is_not_found(server: Running, path: str) -> None:
    assert (await _ask(server, post(path, b"{}"))).status == 404
