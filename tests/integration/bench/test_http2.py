"""The generator's own HTTP/2 against a real gRPC server.

The tests cover what arrives, what is answered, and what breaks.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from benchmarks.load.http2 import Http2Connection, head
from tests.support.waiting import until
from twophase.grpc_server.status import framed

Handler = Callable[[bytes, Any], Awaitable[bytes]]


class Asked:
    """Makes calls, and keeps how each ended."""

    def __init__(self, connection: Http2Connection, authority: str) -> None:
        self.connection = connection
        self.authority = authority

    async def __call__(self, path: str, message: bytes = b"") -> str:
        """One call; what speaks against it, empty when nothing does."""
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.connection.call(head(path, self.authority), framed(message), _Caller(ended))
        async with asyncio.timeout(60):
            return await ended


class _Caller:
    def __init__(self, ended: asyncio.Future[str]) -> None:
        self._ended = ended

    def answered(self, refusal: str) -> None:
        self._ended.set_result(refusal)

    def cut_off(self) -> None:
        self._ended.set_result("cut off")


class Served:
    """A gRPC server of one method, `/s/M`, and a connection to it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        self.waiting = asyncio.Event()
        self.lost: list[Http2Connection] = []

    async def answer(self, raw: bytes, context: Any) -> bytes:
        self.received.append(raw)
        if raw.startswith(b"abort"):
            await context.abort(grpc.StatusCode.ABORTED, "größer FAILURE", (("x-why", "because"),))
        if raw == b"wait":
            self.waiting.set()
            await asyncio.Event().wait()
        context.set_trailing_metadata((("x-number", str(len(self.received))),))
        return raw[:1000]

    async def start(self) -> Asked:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self.answer)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"M": handler}),))
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        connection = Http2Connection(self.lost.append)
        await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", port)
        await connection.ready
        return Asked(connection, f"127.0.0.1:{port}")


@pytest.fixture
async def served() -> AsyncIterator[tuple[Served, Asked]]:
    one = Served()
    asked = await one.start()
    yield one, asked
    asked.connection.cut()
    await one.server.stop(None)


async def test_many_calls_at_once_arrive_and_are_answered(served: tuple[Served, Asked]) -> None:
    server, asked = served
    messages = [b"%d" % number for number in range(300)]
    assert await asyncio.gather(*(asked("/s/M", message) for message in messages)) == [""] * 300
    assert sorted(server.received) == sorted(messages)


async def test_messages_larger_than_the_servers_windows_arrive_whole(served: tuple[Served, Asked]) -> None:
    server, asked = served
    messages = [bytes([number]) * (3 << 20) for number in range(3)] + [b"small"]
    assert await asyncio.gather(*(asked("/s/M", message) for message in messages)) == [""] * 4
    assert sorted(server.received) == sorted(messages)


async def test_a_refusal_is_reported_by_its_code_and_text(served: tuple[Served, Asked]) -> None:
    _, asked = served
    assert (await asked("/s/M", b"abort")).startswith("ABORTED gr")
    assert (await asked("/s/Nosuch")).startswith("UNIMPLEMENTED")
    assert await asked("/s/M", b"on") == ""


async def test_a_waiting_caller_learns_of_a_lost_connection(served: tuple[Served, Asked]) -> None:
    server, asked = served
    call = asyncio.ensure_future(asked("/s/M", b"wait"))
    await server.waiting.wait()
    await server.server.stop(None)
    assert await call
    await until(lambda: server.lost)
    assert not asked.connection.open


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", b""])
async def test_another_kind_of_server_is_reported_as_such(said: bytes) -> None:
    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(speak, "127.0.0.1", 0, family=socket.AF_INET) as server:
        connection = Http2Connection(lambda _connection: None)
        port = server.sockets[0].getsockname()[1]
        await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", port)
        with pytest.raises(OSError, match=r"not HTTP/2|closed before|reset"):
            await connection.ready
