"""A gRPC server that answers each request with its own bytes.

It is the ceiling beside which the port for RocketMQ's clients is measured: twophase's HTTP/2 and gRPC code, the two
methods of a transaction, and nothing behind them.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from typing import Any

import uvloop

from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.port import Port
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.services import Services
from twophase.grpc_server.status import Ended, Status, ended, success
from twophase.grpc_server.unary import UnaryCall
from twophase.rocketmq_wire.descriptors import SERVICE

_BYTES_MAX = 64 * 1024
_CALLS_MAX = 10_000
_FIELDS_MAX = 10_000_000
"""More than any client sends: each call has a header of its own."""


def _echo(call: UnaryCall, message: bytes) -> None:
    call.finish(success(message))


def _refused(text: str) -> Response:
    return ended(Status.UNIMPLEMENTED, text)


def _crashed(error: Exception) -> None:
    print(f"echo server: {error!r}", file=sys.stderr)


def _nothing() -> None:
    """Count nothing: there is no counter here."""


async def serve() -> None:
    """Serve until a signal arrives."""
    services = Services(
        message_bytes_max=_BYTES_MAX,
        header_list_bytes_max=_BYTES_MAX,
        calls_max=_CALLS_MAX,
        too_many=_refused,
        unknown=_refused,
        on_refused=_nothing,
        on_crash=_crashed,
        crash_end=Ended(Status.INTERNAL, "a fault"),
    )
    services.varying = b"x-mq-request-id"
    for method in ("SendMessage", "EndTransaction"):
        services.unary(f"/{SERVICE}/{method}", _echo)
    port: Port[Any] = Port(services.read, Limits(fields_max=_FIELDS_MAX), _crashed, _nothing)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    bound = await port.start("127.0.0.1", 0)
    gc.collect()
    gc.freeze()
    print(f"echo server ready: grpc://127.0.0.1:{bound} (keeps nothing)", flush=True)
    await stop.wait()
    port.stop()
    await services.stop()


if __name__ == "__main__":
    uvloop.run(serve())
