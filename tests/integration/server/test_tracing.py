"""Each call of a message carries the trace of its request.

Three APIs and three kinds of calls are tried.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import msgspec

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import grpc_url, message, method
from tests.integration.server.test_grpc_branches import Bank, reply
from tests.support.fake_coordinator import Client, post
from tests.support.server_process import BranchService, branch_service
from twophase.coordinator.state.active_message import Reply
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.options import Options
from twophase.grpc_wire.messages import Request, encode_request

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HEADERS = (f"TraceParent: {PARENT}", "tracestate: a=1", "X-Request-Id: 7", "X-Other: no")


def _message(gid: str, service: BranchService, **fields: object) -> dict[str, object]:
    return {
        "gid": gid,
        "trans_type": "msg",
        "steps": [{"action": service.url("/in")}],
        "payloads": ["{}"],
        "query_prepared": service.url("/check"),
    } | fields


async def _ask(server: Running, path: str, body: object, *headers: str) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    assert (await client.ask(post(path, msgspec.json.encode(body), *headers))).status == 200
    client.close()


async def test_branches_and_check_backs_carry_the_prepares_trace(tmp_path: Path) -> None:
    async with branch_service() as service, running(tmp_path) as server:
        await _ask(server, "/api/dtmsvr/prepare", _message("g", service), *HEADERS)
        server.advance(35_064)
        await server.until("g", State.SUCCEEDED)
    assert [call[0] for call in service.calls] == ["/check", "/in"]
    for head in service.heads:
        assert f"traceparent: {PARENT}\r\n" in head
        assert "tracestate: a=1\r\n" in head
        assert "x-request-id" not in head
        assert "x-other" not in head


async def test_a_plain_submit_and_json_rpc_have_theirs_and_other_names_may_be_chosen(tmp_path: Path) -> None:
    async with branch_service() as service, running(tmp_path, trace_headers="x-request-id") as server:
        await _ask(server, "/api/dtmsvr/submit", _message("http", service), *HEADERS)
        call = {"jsonrpc": "2.0", "id": "1", "method": "submit", "params": _message("rpc", service)}
        await _ask(server, "/api/json-rpc", call, *HEADERS)
        for gid in ("http", "rpc"):
            await server.until(gid, State.SUCCEEDED)
    assert len(service.heads) == 2
    for head in service.heads:
        assert "x-request-id: 7\r\n" in head
        assert "traceparent" not in head


async def test_one_connection_does_not_lend_a_trace_to_the_next_request(tmp_path: Path) -> None:
    async with branch_service() as service, running(tmp_path) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        for gid, headers in (("traced", HEADERS), ("plain", ())):
            body = msgspec.json.encode(_message(gid, service))
            assert (await client.ask(post("/api/dtmsvr/submit", body, *headers))).status == 200
        client.close()
        traced, plain = [(await server.view(gid)).message.options.trace for gid in ("traced", "plain")]
    assert (traced, plain) == ((("traceparent", PARENT), ("tracestate", "a=1")), ())


async def test_grpc_metadata_goes_on_as_grpc_metadata(tmp_path: Path) -> None:
    bank = Bank()
    await bank.start()
    bank.behaviours["Check"] = [reply()]
    async with running(tmp_path, grpc_port=0) as server:
        said = message("g", bank.url("In"), query_prepared=bank.url("Check"), trans_type="msg")
        async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
            prepare = method(channel, "/dtmgimp.Dtm/Prepare")
            metadata = (("traceparent", PARENT), ("x-other", "no"))
            await prepare(encode_request(Request(**said)), metadata=metadata, timeout=20)
        server.advance(35_064)
        await server.until("g", State.SUCCEEDED)
    await bank.stop()
    assert [call.method.rpartition("/")[2] for call in bank.calls] == ["Check", "In"]
    for call in bank.calls:
        assert call.metadata["traceparent"] == PARENT
        assert "x-other" not in call.metadata


async def test_a_stored_header_that_no_call_can_carry_delays_no_other_message(tmp_path: Path) -> None:
    """Earlier versions accepted such a header.

    Then neither a branch nor a check-back could ever be called.
    """
    options = Options(headers=(("Keep-Alive", "timeout=5"), ("X-Tenant", "7")), trace=(("proxy-connection", "close"),))
    async with branch_service() as service, running(tmp_path) as server:
        stored = Message("g", (Branch(service.url("/in")),), service.url("/check"), options)
        prepared: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        server.server.coordinator.prepare(stored, prepared.set_result)
        assert (await prepared).error is None
        server.advance(35_064)
        await server.until("g", State.SUCCEEDED)
    assert [call[0] for call in service.calls] == ["/check", "/in"]
    for head in service.heads:
        assert "x-tenant: 7\r\n" in head.lower()
        assert "keep-alive" not in head.lower()
        assert "proxy-connection" not in head.lower()
