"""A port with services of every kind, for real clients of gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from twophase.coordinator.background import end
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.port import Port
from twophase.grpc_server.services import Services
from twophase.grpc_server.status import Ended, Status, ended, success
from twophase.grpc_server.streaming import StreamingCall
from twophase.grpc_server.unary import UnaryCall
from twophase.http_client.byte_budget import ByteBudget

MESSAGE_BYTES_MAX = 4 << 20


@dataclass
class Served:
    """A port with one method of each kind.

    `/s/Echo` answers by callback, `/s/Later` by coroutine, `/s/Chat` echoes a stream, `/s/Count` sends as many messages
    as the request asks for, `/s/Tell` sends the first message by a task of its own, and ends with the request,
    `/s/Odds` finds nothing in a message.
    """

    services: Services
    port: Port[Any]
    address: str = ""
    metadata: list[list[tuple[str, str | bytes]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    crashes: list[Exception] = field(default_factory=list)

    def echo(self, call: UnaryCall, message: bytes) -> None:
        self.metadata.append(call.head.metadata())
        if message.startswith(b"refuse"):
            call.refuse(Status.ABORTED, "größer, 100 %", (("x-why", "because"), ("x-data-bin", b"\xff\x00")))
        elif message == b"never":
            self.unanswered += 1
        else:
            call.finish(success(message, (("x-size", str(len(message))),)))

    async def later(self, _call: UnaryCall, message: bytes) -> bytes:
        try:
            if message == b"wait":
                await self.hold.wait()
            if message == b"crash":
                raise RuntimeError("secret")
            if message == b"end":
                raise Ended(Status.NOT_FOUND, "no such thing")
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return message[::-1]

    async def chat(self, call: StreamingCall) -> None:
        try:
            async for message in call:
                if message == b"crash":
                    raise RuntimeError("secret")
                await call.send(message)
            self.ended.append("to its end")
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise

    async def count(self, call: StreamingCall) -> None:
        async for message in call:
            number, size = map(int, message.split())
            for index in range(number):
                await call.send(b"%d" % index + bytes(size))
                self.sent = index + 1
            raise Ended(Status.OUT_OF_RANGE, "that was all", (("x-count", str(number)),))

    async def tell(self, call: StreamingCall) -> None:
        async for message in call:
            telling = asyncio.ensure_future(call.send(message))
            await asyncio.sleep(0)  # it begins
            self.told.set()
            with contextlib.suppress(StopAsyncIteration):
                await anext(call)
            await end(telling)
            if message.startswith(b"crash"):
                raise RuntimeError("secret")

    async def odd(self, call: StreamingCall) -> None:
        async for _ in call:
            call.odd()

    sent: int = 0
    told: asyncio.Event = field(default_factory=asyncio.Event)
    unanswered: int = 0


@contextlib.asynccontextmanager
async def serving(
    limits: Limits | None = None, calls_max: int = 10_000, budget: ByteBudget | None = None
) -> AsyncIterator[Served]:
    """Serve for one test."""
    limits = limits or Limits()
    crashes: list[Exception] = []
    services = Services(
        message_bytes_max=MESSAGE_BYTES_MAX,
        header_list_bytes_max=limits.header_list_bytes_max,
        calls_max=calls_max,
        too_many=lambda text: ended(Status.RESOURCE_EXHAUSTED, text),
        unknown=lambda path: ended(Status.UNIMPLEMENTED, f"no {path}"),
        on_refused=lambda: None,
        on_crash=crashes.append,
        crash_end=Ended(Status.UNKNOWN, "our own fault."),
    )
    port: Port[Any] = Port(services.read, limits, crashes.append, lambda: None, budget)
    served = Served(services, port, crashes=crashes)
    services.unary("/s/Echo", served.echo)
    services.coroutine("/s/Later", served.later)
    services.streaming("/s/Chat", served.chat)
    services.streaming("/s/Count", served.count)
    services.streaming("/s/Tell", served.tell)
    services.streaming("/s/Odds", served.odd)
    served.address = f"127.0.0.1:{await port.start('127.0.0.1', 0)}"
    try:
        yield served
    finally:
        port.stop()
        await services.stop()
        assert await port.closed(60), "every connection ends"
        assert services.calls == served.unanswered, "every call is counted down"
