"""A request under way when its token changes is held to what the token is then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import grpc_url
from tests.integration.server.test_identities import Api, body_of
from tests.support.fake_coordinator import Client, Response, post
from tests.support.identities import bearer, token_of, write
from twophase.core.errors import Forbidden, Unauthenticated
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed
from twophase.grpc_wire.messages import Request, encode_request
from twophase.server.identity.gate import Gate
from twophase.server.identity.quotas import Meter
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota, changing

EVERYTHING: Final = (Scope.PRODUCE, Scope.OPERATE, Scope.TOPICS)
SUBMIT: Final = json.loads(body_of("g"))
MANY: Final = "/api/twophase/submit-many"
BODIES: Final[dict[str, bytes]] = {
    "/api/dtmsvr/submit": body_of("g"),
    MANY: json.dumps({"messages": [SUBMIT]}).encode(),
    "/api/json-rpc": json.dumps({"jsonrpc": "2.0", "id": "1", "method": "submit", "params": SUBMIT}).encode(),
    "/api/twophase/messages/known/park": b'{"reason": "x"}',
    "/api/twophase/topics/subscribe": b'{"topic": "t", "url": "http://127.0.0.1:1/in"}',
}
CHANGES: Final[dict[str, dict[str, Any]]] = {
    "scopes": {"scopes": (Scope.OBSERVE,)},
    "gid_prefix": {"gid_prefix": "other-"},
    "destinations": {"destinations": ("http://127.0.0.1:2/",)},
}


@asynccontextmanager
async def server_of(folder: Path) -> AsyncIterator[Running]:
    """A server that knows `eve`, who may do much, and a prepared message of hers."""
    tokens = write(folder, "eve", EVERYTHING, quota=Quota(requests_per_s=1_000_000))
    async with running(folder, tokens=tokens, grpc_port=0, timeout_to_fail_ms=86_400_000) as server:
        assert (await Api(server).say("prepare", "known", "eve")).status == 200
        yield server


def change(server: Running, fields: dict[str, Any] | None) -> None:
    """Give eve's entry these contents, or remove it, and let the server read it."""
    with changing(Path(server.server.settings.tokens)) as entries:
        entries[:] = [] if fields is None else [msgspec.structs.replace(one, **fields) for one in entries]
    server.server.gate.reread()


async def until_begun(gate: Gate, begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until the server has found out who sends the request that `begin` sends."""
    known, among = asyncio.Event(), gate.among

    def spied(*given: Any) -> Any:
        known.set()
        return among(*given)

    monkeypatch.setattr(gate, "among", spied)
    begin()
    await known.wait()
    for _ in range(10):  # its handler begins to wait for the body
        await asyncio.sleep(0)


async def in_two_parts(
    server: Running, path: str, fields: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> Response:
    """Send a request, but for its last byte; change the token; send the byte."""
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    request = post(path, BODIES[path], *bearer("eve"))
    await until_begun(server.server.gate, lambda: client.writer.write(request[:-1]), monkeypatch)
    change(server, fields)
    await client.send(request[-1:])
    answer = await client.response()
    client.close()
    return answer


@pytest.mark.parametrize("path", BODIES)
async def test_a_revoked_token_begins_nothing_with_a_body_under_way(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server_of(tmp_path) as server:
        answer = await in_two_parts(server, path, None, monkeypatch)
        assert Unauthenticated.code in answer.body.decode()
        assert await server.server.coordinator.query("g") is None
        assert not (await server.view("known")).parked
        assert not (await server.server.coordinator.topics.refresh()).by_name


@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("path", BODIES)
async def test_a_narrowed_token_ends_what_it_may_not_do_any_more(
    tmp_path: Path, path: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = (changed == "destinations" and path.endswith("park")) or (
        changed == "gid_prefix" and path.endswith("subscribe")
    )
    async with server_of(tmp_path) as server:
        answer = await in_two_parts(server, path, CHANGES[changed], monkeypatch)
        known = "TP-2004" if path.endswith("park") and changed == "gid_prefix" else Forbidden.code
        assert (known in answer.body.decode()) is not allowed, answer
        assert await server.server.coordinator.query("g") is None
        assert (await server.view("known")).parked is (allowed and path.endswith("park"))
        assert len((await server.server.coordinator.topics.refresh()).by_name) == (
            allowed and path.endswith("subscribe")
        )


@pytest.mark.parametrize("changed", [None, *CHANGES, "quota"])
async def test_a_client_without_bounds_is_held_to_those_that_its_token_gets(
    tmp_path: Path, changed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both with a request under way, and with the next one, whose head the port knew."""
    changes = CHANGES | {"quota": {"quota": Quota(requests_per_s=1)}}
    tokens = write(tmp_path, "eve", [Scope.PRODUCE])
    async with running(tmp_path, tokens=tokens, timeout_to_fail_ms=86_400_000) as server:
        client, other = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
        sent = [post("/api/dtmsvr/prepare", body_of(f"g{number}"), *bearer("eve")) for number in range(9)]
        for request in sent[:2]:
            await client.send(request)
            assert (await client.response()).status == 200
        half = post("/api/dtmsvr/prepare", body_of("half"), *bearer("eve"), "x-other: head")
        await until_begun(server.server.gate, lambda: other.writer.write(half[:-1]), monkeypatch)
        change(server, None if changed is None else changes[changed])
        await other.send(half[-1:])
        answers = [(await other.response()).status]
        for request in sent[2:]:
            await client.send(request)
            answers.append((await client.response()).status)
        client.close()
        other.close()
        refused = {None: 401, "quota": 429}.get(changed or None, 403)
        assert refused in answers
        assert changed == "quota" or set(answers) == {refused}
        assert (await server.server.coordinator.query("g8") is None) is (answers[-1] == refused)


@pytest.mark.parametrize("changed", [None, *CHANGES])
async def test_a_call_of_grpc_is_held_to_the_change_too(
    tmp_path: Path, changed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = {":method": "POST", ":scheme": "http", ":path": "/dtmgimp.Dtm/Submit", ":authority": "localhost"}
    head |= {"te": "trailers", "content-type": "application/grpc", "authorization": f"Bearer {token_of('eve')}"}
    block = b"".join(frames.field(name.encode(), value.encode()) for name, value in head.items())
    call = Request(gid="g", trans_type="msg", steps='[{"action":"http://127.0.0.1:1/in"}]', payloads=[b"{}"])
    async with server_of(tmp_path) as server:
        reader, writer = await asyncio.open_connection(*grpc_url(server).removeprefix("grpc://").rsplit(":", 1))
        hello = frames.PREFACE + frames.settings({}) + frames.header_frames(1, block)
        await until_begun(server.server.gate, lambda: writer.write(hello), monkeypatch)
        change(server, None if changed is None else CHANGES[changed])
        writer.write(frames.frame(frames.DATA, frames.END_STREAM, 1, framed(encode_request(call))))
        await reader.readuntil(b"grpc-status")
        code = await reader.readexactly(3)
        writer.close()
        assert await server.server.coordinator.query("g") is None
    assert code[1:] == (b"16" if changed is None else b"7\0")


async def test_what_is_checked_again_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server_of(tmp_path) as server:
        counted: list[int] = []
        monkeypatch.setattr(Meter, "count", lambda _meter, requests, _counted=0: counted.append(requests))
        park = post("/api/twophase/messages/known/park", b'{"reason": "x"}', *bearer("eve"))
        assert (await Api(server).http(park)).status == 200
    assert counted == [1]


def test_whoever_holds_a_caller_holds_what_its_entry_is_now(tmp_path: Path) -> None:
    tokens = Path(write(tmp_path, "eve", [Scope.PRODUCE]))
    write(tmp_path, "eve", [Scope.PRODUCE], san=("eve.internal",))
    gate = Gate(str(tokens))
    held = [
        gate.with_token(token_of("eve").encode()),
        gate.with_certificate({"subjectAltName": (("DNS", "eve.internal"),)}),
    ]
    for prefix in ("a-", "b-"):  # the second reading finds the holders of the first
        with changing(tokens) as entries:
            entries[:] = [msgspec.structs.replace(one, scopes=(Scope.OBSERVE,), gid_prefix=prefix) for one in entries]
        gate.reread()
        for caller in held:
            with pytest.raises(Forbidden):
                caller.require(frozenset({Scope.PRODUCE}))
            assert caller.gid_prefix == prefix
    with changing(tokens) as entries:
        entries.clear()
    gate.reread()
    for caller in held:
        with pytest.raises(Unauthenticated):
            caller.require(frozenset({Scope.OBSERVE}))
