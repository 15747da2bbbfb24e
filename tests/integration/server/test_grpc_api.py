"""The gRPC port's own life.

The tests cover its addresses, tracing on one connection, and watchers and callers when the server leaves.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.integration.server.test_grpc import Code, Dtm, message, method
from tests.support.fake_coordinator import FakeCoordinator, StoppedClock
from tests.support.waiting import until
from twophase.grpc_wire.messages import Request, encode_request
from twophase.server.api.dtm_grpc import GrpcApi
from twophase.server.codecs.decode import Decoder


class Api:
    """A port with a fake coordinator, and a channel to it."""

    def __init__(self) -> None:
        self.coordinator = FakeCoordinator()
        self.refused: list[str] = []
        self.api = GrpcApi(self.coordinator, Decoder(lambda url: None), StoppedClock(), on_refused=self.refused.append)

    async def start(self, host: str = "127.0.0.1") -> str:
        return (await self.api.start(host, 0)).removeprefix("grpc://")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    one = Api()
    yield one
    await one.api.stop()


async def test_each_request_of_a_connection_has_its_own_trace(api: Api) -> None:
    parents = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 30)]
    async with grpc.aio.insecure_channel(await api.start()) as channel:
        submit = method(channel, "/dtmgimp.Dtm/Submit")
        for parent in (*parents, *parents[:3]):
            raw = encode_request(Request(**message(parent), trans_type="msg"))
            await submit(raw, metadata=(("traceparent", parent),), timeout=20)
    assert len(api.coordinator.messages) == 32
    for said in api.coordinator.messages:
        assert said.options.trace == (("traceparent", said.gid),)


async def test_a_name_with_two_addresses_is_served_on_both_with_one_port(api: Api) -> None:
    families = {one[0] for one in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    port = (await api.start("localhost")).rpartition(":")[2]
    targets = {socket.AF_INET: f"127.0.0.1:{port}", socket.AF_INET6: f"[::1]:{port}"}
    for family in families:
        async with grpc.aio.insecure_channel(targets[family]) as channel:
            assert await Dtm(channel).raw("NewGid", b"")


async def test_a_port_that_is_taken_on_one_address_is_let_go_on_the_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(host: str, port: int, **_rest: Any) -> list[Any]:
        assert host == "two"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="address already in use"):
            await api.api.start("two", port)
        socket.create_server(("127.0.0.2", port)).close()


async def test_a_watcher_is_notified_and_does_not_hold_the_end_up(api: Api) -> None:
    async with grpc.aio.insecure_channel(await api.start()) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watching = stub.Watch(health_pb2.HealthCheckRequest(service="dtmgimp.Dtm"), timeout=60)
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        began_s = time.monotonic()
        await api.api.drain(60)
        assert time.monotonic() - began_s < 20
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watching.read()
        assert caught.value.code() is Code.UNAVAILABLE


async def test_an_unknown_service_has_no_health(api: Api) -> None:
    async with grpc.aio.insecure_channel(await api.start()) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nosuch"), timeout=20)
        assert caught.value.code() is Code.NOT_FOUND


async def test_draining_waits_no_longer_than_it_is_given(api: Api) -> None:
    api.coordinator.holds = True
    async with grpc.aio.insecure_channel(await api.start()) as channel:
        call = asyncio.ensure_future(Dtm(channel).ask("Submit", **message("g")))
        await until(lambda: api.coordinator.held)
        await api.api.drain(0.2)
        assert not call.done()
        await api.api.stop()
        with pytest.raises(Exception, match="UNAVAILABLE"):
            await call
    api.coordinator.release("g")  # the caller has gone, and nothing breaks


async def test_what_the_api_refuses_is_counted(api: Api) -> None:
    async with grpc.aio.insecure_channel(await api.start()) as channel:
        dtm = Dtm(channel)
        for name in ("Nosuch", "Prepare", "RegisterBranch"):
            await dtm.refused(name)
    assert api.refused == ["TP-1000", "TP-1000", "TP-1002"]
