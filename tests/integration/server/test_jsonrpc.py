"""The JSON-RPC endpoint as dtm's clients use it, and JSON-RPC branches.

A whole server runs over sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.server.running import PATIENT, SECOND_TRY_MS, Running, running
from tests.support.fake_coordinator import Client, get, post
from twophase.core.lifecycle import State


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, **PATIENT) as one:
        yield one


async def _post(server: Running, path: str, body: bytes) -> tuple[int, Any]:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        response = await client.ask(post(path, body))
        return response.status, msgspec.json.decode(response.body)
    finally:
        client.close()


async def _call(server: Running, method: str, params: Any = None) -> Any:
    status, said = await _post(
        server,
        "/api/json-rpc",
        msgspec.json.encode({"jsonrpc": "2.0", "id": "1", "method": method, "params": params}),
    )
    assert (status, said["jsonrpc"], said["id"]) == (200, "2.0", "1")
    return said


def _message(gid: str, url: str = "http://127.0.0.1:1/nobody", **fields: Any) -> dict[str, Any]:
    return {
        "gid": gid,
        "trans_type": "msg",
        "steps": [{"action": url}],
        "payloads": ['{"amount":30}'],
        "query_prepared": "http://127.0.0.1:1/check",
        "protocol": "json-rpc",
    } | fields


class RpcService:
    """A JSON-RPC service that answers each method with the test's answers in turn.

    The last one is repeated.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.calls: list[Any] = []
        self.port = 0

    def url(self, method: str) -> str:
        return f"http://127.0.0.1:{self.port}/rpc?method={method}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].split()[0])
                call = msgspec.json.decode(await reader.readexactly(length))
                self.calls.append(call)
                answers = self.answers.get(call["method"], [{"result": {}}])
                said = answers.pop(0) if len(answers) > 1 else answers[0]
                body = msgspec.json.encode({"jsonrpc": "2.0", "id": call["id"]} | said)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()


@pytest.fixture
async def service() -> AsyncIterator[RpcService]:
    one = RpcService()
    listening = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = listening.sockets[0].getsockname()[1]
    yield one
    listening.close()


def _error(code: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no"}}


# body, HTTP status, code and the beginning of the message: as recorded from dtm 1.19
BAD: list[tuple[str, bytes, int, int, str]] = [
    ("malformed", b"{bad", 400, -32700, "Parse json error: "),
    ("empty", b"", 400, -32700, "Parse json error: "),
    ("batch", b"[]", 400, -32700, "Parse json error: "),
    ("numeric id", b'{"jsonrpc":"2.0","id":1,"method":"newGid"}', 400, -32700, "Parse json error: "),
    ("nested", b'{"params":' + b"[" * 100_000, 400, -32700, "Parse json error: "),
    ("no id", b'{"jsonrpc":"2.0","method":"newGid"}', 200, -32600, "Bad json request: id"),
    ("empty id", b'{"jsonrpc":"2.0","id":"","method":"newGid"}', 200, -32600, "Bad json request: id"),
    ("version", b'{"jsonrpc":"1.0","id":"1","method":"newGid"}', 200, -32600, "Bad json request: jsonrpc"),
    ("method", b'{"jsonrpc":"2.0","id":"1","method":"nosuch"}', 200, -32601, "Method not found: nosuch"),
    ("no method", b'{"jsonrpc":"2.0","id":"1"}', 200, -32601, "Method not found: "),
    (
        "params text",
        b'{"jsonrpc":"2.0","id":"1","method":"prepare","params":"x"}',
        200,
        -32603,
        "the request: expected",
    ),
    (
        "params null",
        b'{"jsonrpc":"2.0","id":"1","method":"submit","params":null}',
        200,
        -32603,
        "the request: expected",
    ),
    ("no params", b'{"jsonrpc":"2.0","id":"1","method":"abort"}', 200, -32603, "the request: expected"),
]


@pytest.mark.parametrize(("body", "status", "code", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_bad_calls_get_the_documented_codes(
    server: Running, body: bytes, status: int, code: int, text: str
) -> None:
    got, said = await _post(server, "/api/json-rpc", body)
    assert (got, said["error"]["code"], said["result"]) == (status, code, None)
    assert said["error"]["message"].startswith(text)


async def test_get_is_not_found(server: Running) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    response = await client.ask(get("/api/json-rpc"))
    client.close()
    assert (response.status, response.body) == (404, b"404 page not found")


@pytest.mark.parametrize("params", [None, "", {}])
async def test_new_gid_takes_any_params(server: Running, params: Any) -> None:
    said = await _call(server, "newGid", params)
    assert said["error"] is None
    assert said["result"]["gid"]


async def test_a_message_goes_its_way(server: Running, service: RpcService) -> None:
    message = _message("g", service.url("transfer_in"))
    for method in ("prepare", "prepare", "submit"):
        said = await _call(server, method, message)
        assert (said["error"], said["result"]) == (None, None)
    await server.until("g", State.SUCCEEDED)
    assert service.calls == [
        {
            "jsonrpc": "2.0",
            "id": "g-01",
            "method": "transfer_in",
            "params": {"amount": 30, "branch_id": "01", "gid": "g", "op": "action", "trans_type": "msg"},
        }
    ]
    for method, text, code in (
        ("submit", "current status 'succeed', cannot sumbmit. FAILURE", "TP-2001"),
        ("prepare", "current status 'succeed', cannot prepare. FAILURE", "TP-2001"),
        ("abort", "trans type: 'msg' current status 'succeed', cannot abort. FAILURE", "TP-2003"),
    ):
        said = await _call(server, method, message)
        assert (said["error"]["code"], said["error"]["message"], said["result"]) == (-32901, text, {})
        assert (said["error"]["data"]["code"], said["error"]["data"]["state"]) == (code, "succeed")
    other = await _call(server, "submit", message | {"payloads": ['{"amount":31}']})
    assert (other["error"]["code"], other["error"]["data"]["code"]) == (-32901, "TP-2002")


async def test_an_abort_ends_a_prepared_message(server: Running) -> None:
    await _call(server, "prepare", _message("g"))
    assert (await _call(server, "abort", {"gid": "g"}))["error"] is None
    assert (await server.view("g")).state is State.FAILED


async def test_errors_that_are_no_refusal_have_the_general_code(server: Running) -> None:
    unknown = await _call(server, "abort", _message("nosuch"))
    assert unknown["error"]["code"] == -32603
    assert unknown["error"]["message"] == "no TransGlobal with gid: nosuch found"
    saga = await _call(server, "prepare", _message("g", trans_type="saga"))
    assert (saga["error"]["code"], saga["error"]["data"]["code"]) == (-32603, "TP-1002")
    branch = await _call(server, "registerBranch", _message("g", branch_id="01"))
    assert (branch["error"]["code"], branch["error"]["data"]["code"]) == (-32603, "TP-1002")
    assert await server.server.coordinator.query("g") is None


@pytest.mark.parametrize(("code", "waits"), [(-32603, -32603), (-32901, -32901), (-32902, -32901)])
async def test_wait_result_says_how_the_branch_answered(
    server: Running, service: RpcService, code: int, waits: int
) -> None:
    service.answers["in"] = [_error(code), {"result": {}}]
    said = await _call(server, "submit", _message("g", service.url("in"), wait_result=True))
    assert said["error"]["code"] == waits
    assert said["error"]["message"].startswith("wait result not return success")
    server.advance(SECOND_TRY_MS)
    await server.until("g", State.SUCCEEDED)


async def test_every_error_leaves_it_submitted_until_success(server: Running, service: RpcService) -> None:
    service.answers["in"] = [_error(-32000), _error(-32902), _error(-32901), {"result": {}}]
    await _call(server, "submit", _message("g", service.url("in")))
    for attempts in (1, 2, 3):
        view = await server.until_logged("g", attempts)
        assert view.state is State.SUBMITTED
        server.advance(SECOND_TRY_MS)
    view = await server.until("g", State.SUCCEEDED)
    assert [(one.status, one.result) for one in view.log] == [(500, "error"), (425, "ongoing"), (409, "failed")]
    assert view.log[0].error == "JSON-RPC error -32000: no"


@pytest.mark.parametrize(("said", "state"), [({"result": {}}, State.SUCCEEDED), (_error(-32901), State.FAILED)])
async def test_a_check_back_by_json_rpc_decides(server: Running, service: RpcService, said: Any, state: State) -> None:
    service.answers["check"] = [_error(-32902), said]
    await _call(server, "prepare", _message("g", service.url("in"), query_prepared=service.url("check")))
    server.advance(36_000)
    await server.until_logged("g")
    server.advance(SECOND_TRY_MS)
    await server.until("g", state)
    assert service.calls[0]["params"]["branch_id"] == "00"
    assert service.calls[0]["params"]["op"] == "msg"


async def test_an_address_without_method_is_called_by_http(server: Running, service: RpcService) -> None:
    url = f"http://127.0.0.1:{service.port}/payment-method"
    await _call(server, "submit", _message("g", url, payloads=['{"method":"plain","id":"1"}']))
    await server.until("g", State.SUCCEEDED)
    assert service.calls == [{"method": "plain", "id": "1"}]
