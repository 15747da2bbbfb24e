"""CPU that a gRPC request costs the port, without its sockets.

Frames arrive, are decoded and accepted, and the reply's frames leave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.load.http2 import head
from benchmarks.measure import ROUNDS, Result
from twophase.coordinator.state.active_message import OnReply, Owner, Reply
from twophase.core.hooks import WallClock
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.connection import Connection
from twophase.grpc_server.status import framed
from twophase.grpc_wire.messages import SERVICE, Request, encode_request
from twophase.server.api.dtm_grpc import GrpcApi
from twophase.server.codecs.decode import Decoder

_REQUESTS = 8_000
_A_READ = 16
_PREPARED = Reply(None, State.PREPARED, 1_700_000_000_000)
_PREPARE = encode_request(
    Request(
        gid="g" * 24,
        trans_type="msg",
        steps='[{"action":"http://127.0.0.1:8000/in"}]',
        payloads=[b'{"amount":30,"account":"B"}'],
        query_prepared="http://127.0.0.1:8000/check",
    )
)


class _Yes:
    """The port's `Requests`, all of them accepted."""

    def prepare(self, message: Message, on_reply: OnReply, *_: object, **__: object) -> None:  # noqa: ARG002
        on_reply(_PREPARED)

    submit = prepare

    def abort(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None:  # noqa: ARG002 -- the protocol's
        on_reply(_PREPARED)


class _Nowhere(asyncio.Transport):
    """A transport that discards the written bytes."""

    def write(self, data: Any) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        pass


async def _measure(name: str, more: Callable[[int], bytes], *, tableless: bool) -> Result:
    """Measure requests with the headers `more(number)` beside the usual ones."""
    door = GrpcApi(_Yes(), Decoder(lambda _url: None), WallClock(), on_refused=print)
    await door.start("127.0.0.1", 0)
    connection = Connection(door._listener._port)  # type: ignore[arg-type]  # noqa: SLF001 -- without a socket
    connection.connection_made(_Nowhere())
    connection.data_received(frames.PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK))
    connection.data_received(frames.window_update(0, 1 << 30))
    block, body, stream, micros = head(f"/{SERVICE}/Prepare", "127.0.0.1:36790"), framed(_PREPARE), 3, list[float]()
    first = block if not tableless else b"\x20" + block  # the table gets a size of 0 bytes
    connection.data_received(frames.header_frames(1, first) + frames.frame(frames.DATA, 1, 1, body))
    for number in range(ROUNDS + 1):
        reads = []
        for _ in range(_REQUESTS // _A_READ):
            some = b""
            for _ in range(_A_READ):
                some += frames.header_frames(stream, block + more(stream))
                some += frames.frame(frames.DATA, frames.END_STREAM, stream, body)
                stream += 2
            reads.append(some)
        began = time.process_time()
        for some in reads:
            connection.data_received(some)
        if number:
            micros.append((time.process_time() - began) / _REQUESTS * 1e6)
    assert not connection.deaf
    assert not connection.streams
    connection.connection_lost(None)
    await door.stop()
    return Result(name, tuple(micros))


def results() -> Iterator[Result]:
    """Yield all measurements of this module."""
    trace = "00-%032x-%016x-01"

    def traced(number: int) -> bytes:
        return frames.field(b"traceparent", (trace % (number, number)).encode())

    same = _measure("gRPC port: a prepare, the same headers", lambda _number: b"", tableless=True)
    own = _measure("gRPC port: a prepare, headers of its own", traced, tableless=True)
    table = _measure("gRPC port: the same, from a client that keeps a table", traced, tableless=False)
    for one in (same, own, table):
        yield asyncio.run(one)
