"""A quota holds at every door, and a prepared message can always be submitted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc.aio

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import Code, grpc_url, method
from tests.support.fake_coordinator import Client, Response, get, post
from tests.support.identities import bearer, token_of, write
from tests.support.scripted_server import OK, Peer, answering, serving
from twophase.core.lifecycle import State
from twophase.grpc_wire.messages import Request, encode_request
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota

NEVER_CALLED = {"timeout_to_fail_ms": 86_400_000}


def _body(gid: str, payload: str = "{}") -> bytes:
    steps = [{"action": "http://127.0.0.1:1/in"}]
    return json.dumps({"gid": gid, "trans_type": "msg", "steps": steps, "payloads": [payload]}).encode()


async def _ask(server: Running, request: bytes) -> Response:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        return await client.ask(request)
    finally:
        client.close()


async def _say(server: Running, what: str, gid: str, name: str = "orders", payload: str = "{}") -> Response:
    return await _ask(server, post(f"/api/dtmsvr/{what}", _body(gid, payload), *bearer(name)))


async def test_waiting_messages_are_bounded_for_one_owner_and_come_back(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(waiting_messages=2))
    write(tmp_path, "stock", [Scope.PRODUCE])
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        statuses = [(await _say(server, "prepare", gid)).status for gid in ("a", "b", "a", "c")]
        refused = await _say(server, "prepare", "c")
        others = await _say(server, "prepare", "d", "stock")
        submitted = await _say(server, "submit", "a")
        aborted = await _say(server, "abort", "b")
        again = await _say(server, "prepare", "c")
    assert statuses == [200, 200, 200, 429]
    assert (json.loads(refused.body)["code"], refused.headers["retry-after"]) == ("TP-3006", "1")
    assert [one.status for one in (others, submitted, aborted, again)] == [200] * 4


async def test_a_request_again_for_a_message_that_has_ended_takes_no_room(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(waiting_messages=1))
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        assert (await _say(server, "prepare", "a")).status == 200
        assert (await _say(server, "abort", "a")).status == 200
        repeated = [(await _say(server, "prepare", "a")).status for _ in range(3)]
        assert repeated == [409] * 3
        assert (await _say(server, "prepare", "b")).status == 200


async def test_what_waits_from_before_a_restart_counts(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(waiting_messages=1))
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        assert (await _say(server, "prepare", "a")).status == 200
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        assert (await _say(server, "prepare", "b")).status == 429


async def test_a_prepared_message_can_be_submitted_when_the_quota_is_used_up_and_memory_has_forgotten_it(
    tmp_path: Path,
) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(waiting_messages=1))
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        assert (await _say(server, "prepare", "a")).status == 200
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        assert (await _say(server, "submit", "b")).status == 429
        assert (await _say(server, "prepare", "a")).status == 200
        assert (await _say(server, "submit", "a")).status == 200


async def test_bytes_are_bounded(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(bytes_stored=10_000))
    async with running(tmp_path, tokens=tokens, **NEVER_CALLED) as server:
        assert (await _say(server, "prepare", "a", payload="x" * 6_000)).status == 200
        assert (await _say(server, "prepare", "b", payload="x" * 6_000)).status == 429
        assert (await _say(server, "prepare", "c", payload="x" * 600)).status == 200


async def test_requests_are_counted_over_all_doors_and_many_at_once_as_many(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(requests_per_s=1))
    async with running(tmp_path, tokens=tokens, grpc_port=0, **NEVER_CALLED) as server:
        many = json.dumps({"messages": [json.loads(_body(f"m{number}")) for number in range(4)]}).encode()
        assert (await _ask(server, post("/api/twophase/prepare-many", many, *bearer("orders")))).status == 200
        statuses = [(await _ask(server, get("/api/dtmsvr/newGid", *bearer("orders")))).status for _ in range(8)]
        assert 429 in statuses
        metadata = [("authorization", f"Bearer {token_of('orders')}")]
        raw = encode_request(Request(gid="g", trans_type="msg", steps="[]"))
        async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
            codes = {await _code(channel, raw, metadata) for _ in range(8)}
    assert Code.RESOURCE_EXHAUSTED in codes


async def test_an_owner_whose_branches_never_answer_leaves_places_to_another(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(calls_in_flight=6))
    write(tmp_path, "stock", [Scope.PRODUCE])
    arrived, released = asyncio.Semaphore(0), asyncio.Event()

    async def hang(peer: Peer) -> None:
        while True:
            await peer.request()
            arrived.release()
            await released.wait()
            await peer.say(OK)

    bounds = {"in_flight_max": 8, "in_flight_per_destination_max": 8}
    async with (
        serving(hang).running() as hanging,
        serving(answering(OK)).running() as quick,
        running(tmp_path, tokens=tokens, **bounds) as server,
    ):
        for number in range(10):
            assert (await _submit(server, f"hangs{number}", hanging.url)).status == 200
        async with asyncio.timeout(60):
            for _ in range(6):
                await arrived.acquire()
        for number in range(10):
            assert (await _submit(server, f"quick{number}", quick.url, "stock")).status == 200
        for number in range(10):
            await server.until(f"quick{number}", State.SUCCEEDED)
        assert arrived.locked(), "a seventh call of the first owner is under way"
        released.set()
        for number in range(10):
            await server.until(f"hangs{number}", State.SUCCEEDED)


async def test_a_store_that_is_as_large_as_it_may_be_takes_no_new_message(tmp_path: Path) -> None:
    async with running(tmp_path, **NEVER_CALLED) as server:
        assert (await _ask(server, post("/api/dtmsvr/prepare", _body("a")))).status == 200
    async with running(tmp_path, store_bytes_max=1_024, **NEVER_CALLED) as server:
        refused = [await _ask(server, post(f"/api/dtmsvr/{what}", _body("b"))) for what in ("prepare", "submit")]
        assert (await _ask(server, post("/api/dtmsvr/submit", _body("a")))).status == 200
        assert (await server.view("a")).state is State.SUBMITTED
        assert await server.server.coordinator.query("b") is None
    assert {json.loads(one.body)["code"] for one in refused} == {"TP-4004"}
    assert all("store_bytes_max" in json.loads(one.body)["message"] for one in refused)
    async with running(tmp_path, store_bytes_max=1 << 40, **NEVER_CALLED) as server:
        assert (await _ask(server, post("/api/dtmsvr/prepare", _body("b")))).status == 200


async def test_no_message_may_ask_for_longer_calls_than_the_setting_allows(tmp_path: Path) -> None:
    async with running(tmp_path, request_timeout_max_ms=8_000, **NEVER_CALLED) as server:
        statuses = []
        for seconds in (8, 9):
            said = json.loads(_body(f"g{seconds}")) | {"request_timeout": seconds}
            answer = await _ask(server, post("/api/dtmsvr/prepare", json.dumps(said).encode()))
            statuses.append(answer.status)
    assert statuses == [200, 400]
    assert "request_timeout_max_ms" in json.loads(answer.body)["message"]


async def _submit(server: Running, gid: str, url: str, name: str = "orders") -> Response:
    message = {"gid": gid, "trans_type": "msg", "steps": [{"action": f"{url}/in"}], "payloads": ["{}"]}
    return await _ask(server, post("/api/dtmsvr/submit", json.dumps(message).encode(), *bearer(name)))


async def _code(channel: grpc.aio.Channel, raw: bytes, metadata: list[tuple[str, str]]) -> Code:
    try:
        await method(channel, "/dtmgimp.Dtm/Prepare")(raw, metadata=metadata, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return Code.OK
