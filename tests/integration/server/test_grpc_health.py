"""Health on the gRPC port, when everything else of it is taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.integration.server.test_grpc import Dtm, message
from tests.support.fake_coordinator import FakeCoordinator, StoppedClock
from tests.support.waiting import until
from twophase.core.errors import Overloaded
from twophase.grpc_server.http2 import port as http2_port
from twophase.grpc_server.http2.frames import ACK, GOAWAY, PREFACE, SETTINGS, frame
from twophase.grpc_server.http2.limits import RESERVED_MAX
from twophase.server.api.dtm_grpc import GrpcApi
from twophase.server.codecs.decode import Decoder

Code = grpc.StatusCode
_HELLO = PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK)
_SERVING = health_pb2.HealthCheckResponse.SERVING


class Full:
    """A port with few places, and what holds them."""

    def __init__(self, **bounds: Any) -> None:
        self.coordinator = FakeCoordinator()
        self.coordinator.holds = True
        self.refused: list[str] = []
        self.api = GrpcApi(
            self.coordinator, Decoder(lambda url: None), StoppedClock(), on_refused=self.refused.append, **bounds
        )
        self.target = ""
        self._opened = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self.target = (await self.api.start("127.0.0.1", 0)).removeprefix("grpc://")

    async def stop(self) -> None:
        await self._opened.aclose()
        await self.api.stop()

    async def channel(self) -> grpc.aio.Channel:
        """Return a client with a connection of its own."""
        apart = [("grpc.use_local_subchannel_pool", 1)]
        return await self._opened.enter_async_context(grpc.aio.insecure_channel(self.target, apart))

    async def raw(self, address: str = "127.0.0.1") -> asyncio.StreamReader:
        """Open a connection by hand; return when it is greeted, or has ended."""
        host, port = self.target.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
        self._opened.callback(writer.transport.abort)
        with contextlib.suppress(ConnectionError):
            writer.write(_HELLO)
            await asyncio.wait_for(reader.read(1), 30)
        return reader

    @property
    def port(self) -> Any:
        assert self.api._listener._port is not None
        return self.api._listener._port


@pytest.fixture
async def full() -> AsyncIterator[Full]:
    """Three connections at once, four calls, one stream."""
    one = Full(connections_max=3, calls_max=4)
    await one.start()
    yield one
    await one.stop()


async def _check(channel: grpc.aio.Channel, service: str = "dtmgimp.Dtm") -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
    return int(answer.status)


async def _end_of_watch(channel: grpc.aio.Channel) -> tuple[list[int], grpc.StatusCode]:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    seen: list[int] = []
    try:
        seen += [answer.status async for answer in stub.Watch(health_pb2.HealthCheckRequest(), timeout=30)]
    except grpc.aio.AioRpcError as error:
        return seen, error.code()
    return seen, Code.OK


async def test_health_is_answered_when_all_connections_are_taken(full: Full) -> None:
    for _ in range(3):
        await full.raw()
    assert await _check(await full.channel()) == _SERVING
    other = await full.channel()
    assert await _check(other) == _SERVING
    refused = await Dtm(other).refused("Submit", **message("g"))
    assert refused.code is Code.UNAVAILABLE
    assert "all connections are taken" in refused.text
    assert full.refused == [Overloaded.code]
    assert full.coordinator.heard == []


async def test_health_is_answered_where_an_address_has_its_share() -> None:
    full = Full(connections_max=8, per_address_percent=25)
    await full.start()
    for _ in range(2):
        await full.raw()
    channel = await full.channel()
    assert await _check(channel) == _SERVING
    assert (await Dtm(channel).refused("Submit", **message("g"))).code is Code.UNAVAILABLE
    assert full.port.free("127.0.0.1") == (6, 0)
    await full.stop()


async def test_health_is_answered_when_all_calls_and_streams_are_taken(full: Full) -> None:
    busy, watching = await full.channel(), await full.channel()
    under_way = [asyncio.ensure_future(Dtm(busy).ask("Submit", **message(gid))) for gid in "abcd"]
    stub: Any = health_pb2_grpc.HealthStub(watching)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
    assert (await watch.read()).status == _SERVING
    await until(lambda: len(full.coordinator.held) >= 4)
    await full.raw()
    channel = await full.channel()
    assert await _check(channel) == _SERVING
    assert (await Dtm(busy).refused("Submit", **message("e"))).code is Code.RESOURCE_EXHAUSTED
    assert await _end_of_watch(busy) == ([], Code.RESOURCE_EXHAUSTED)
    for gid in "abcd":
        full.coordinator.release(gid)
    await asyncio.gather(*under_way)
    watch.cancel()


async def test_a_watch_holds_no_reserved_place(full: Full) -> None:
    for _ in range(3):
        await full.raw()
    for _ in range(RESERVED_MAX + 4):
        assert await _end_of_watch(await full.channel()) == ([], Code.UNAVAILABLE)
    assert not full.api._listener._services.streams  # type: ignore[union-attr]  # it is started
    assert await _check(await full.channel()) == _SERVING


async def test_silent_connections_of_one_address_keep_the_reserve_from_no_other(full: Full) -> None:
    """The address with most of the few places gives them up first."""
    for _ in range(3):
        await full.raw()
    probe = await full.channel()
    assert await _check(probe) == _SERVING
    for _ in range(5 * RESERVED_MAX):
        await full.raw("127.0.0.2")
    assert len(full.port._connections) == 3 + RESERVED_MAX
    assert [one.address for one in full.port._reserved].count("127.0.0.1") == 1
    assert await _check(probe) == _SERVING
    assert await _check(await full.channel()) == _SERVING


async def test_a_reserved_place_lasts_a_few_seconds(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_port, "RESERVED_S", 0.0)
    for _ in range(3):
        await full.raw()
    probe = await full.channel()
    assert await _check(probe) == _SERVING
    raw = await full.raw()
    async with asyncio.timeout(60):
        received = await raw.read()
    assert frame(GOAWAY)[3:4] in received
    await until(lambda: not full.port._reserved)
    assert len(full.port._connections) == 3
    assert await _check(probe) == _SERVING, "a client connects again"


async def test_a_place_that_is_free_again_is_an_ordinary_one(full: Full) -> None:
    kept = [await full.channel() for _ in range(3)]
    for channel in kept:
        assert await _check(channel) == _SERVING
    beyond = await full.channel()
    assert await _check(beyond) == _SERVING
    await kept[0].close()
    await until(lambda: len(full.port._connections) <= 3)
    assert full.port.free("127.0.0.1") == (1, 1)
    full.coordinator.holds = False
    await Dtm(await full.channel()).ask("Submit", **message("g"))
