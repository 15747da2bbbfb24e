"""One client of RocketMQ's gRPC interface.

It has a connection, metadata and calls.

Each call has a request id of its own among its headers, as the official clients' calls have, so that a server cannot
know a whole block of headers again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

from benchmarks.failure import BenchmarkFailed
from benchmarks.load.http2 import Caller, Http2Connection, Reader, head
from twophase.grpc_server.http2.frames import field
from twophase.http_client.address import Address
from twophase.rocketmq_wire.descriptors import SERVICE

_PREFIX_BYTES: Final = 5
_NO_TABLE: Final = b"\x20"
"""Tells the server that this peer keeps no header table (RFC 7541, 6.3)."""
_ID_DIGITS: Final = 32
_ID: Final = field(b"x-mq-request-id", b"0" * _ID_DIGITS)[:-_ID_DIGITS] + b"%032x"


class Client:
    """One client.

    Arguments:
        address: the server's.
        client_id: another one for each client.
    """

    def __init__(self, address: Address, client_id: str) -> None:
        self._address = address
        self._connection = Http2Connection(_ignore)
        self._blocks: dict[str, bytes] = {}
        self._metadata = b"".join(
            field(name, value)
            for name, value in (
                (b"x-mq-client-id", client_id.encode()),
                (b"x-mq-language", b"JAVA"),
                (b"x-mq-protocol", b"v2"),
                (b"x-mq-client-version", b"5.2.0"),
                (b"x-mq-date-time", b"20260101T000000Z"),
            )
        )
        self._ids = itertools.count(id(self) << 32)
        self._first = _NO_TABLE

    async def open(self) -> None:
        """Connect.

        Raises:
            BenchmarkFailed: the server cannot be reached.
        """
        host, port = self._address.host, self._address.port
        try:
            await asyncio.get_running_loop().create_connection(lambda: self._connection, host, port)
            await self._connection.ready
        except OSError as error:
            raise BenchmarkFailed(f"{host}:{port} cannot be reached: {error}", remedy="") from error

    def cut(self) -> None:
        """Close at once."""
        self._connection.cut()

    def call(self, method: str, message: bytes, caller: Caller, reader: Reader | None = None) -> None:
        """Make a call; `message` is framed, see `Http2Connection.call`."""
        self._connection.call(self._block(method), message, caller, reader)

    def stream(self, method: str, message: bytes, caller: Caller, on_message: Callable[[bytes], None]) -> None:
        """Begin a call that stays open.

        `on_message` takes each whole message of the answer.
        """
        self._connection.stream(self._block(method), message, caller, Messages(on_message))

    async def ask(self, method: str, message: bytes) -> list[bytes]:
        """Make a call, and return the messages of its answer.

        Raises:
            BenchmarkFailed: the call was refused, or the connection was lost.
        """
        found: list[bytes] = []
        ended = _Ended(method)
        self.call(method, message, ended, Messages(found.append))
        await ended.future
        return found

    def _block(self, method: str) -> bytes:
        block = self._blocks.get(method)
        if block is None:
            authority = f"{self._address.host}:{self._address.port}"
            block = self._blocks[method] = head(f"/{SERVICE}/{method}", authority) + self._metadata
        first, self._first = self._first, b""
        return first + block + _ID % next(self._ids)


class Messages:
    """Cuts the data of an answer into its messages; a `Reader`."""

    def __init__(self, on_message: Callable[[bytes], None]) -> None:
        self._on_message = on_message
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        """Take a piece."""
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        while end - at >= _PREFIX_BYTES:
            stop = at + _PREFIX_BYTES + int.from_bytes(data[at + 1 : at + _PREFIX_BYTES], "big")
            if stop > end:
                break
            self._on_message(data[at + _PREFIX_BYTES : stop])
            at = stop
        self._rest = data[at:]


class _Ended:
    """Resolves a future when a call has ended."""

    def __init__(self, method: str) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._method = method

    def answered(self, refusal: str) -> None:
        if self.future.done():
            return
        if refusal:
            self.future.set_exception(BenchmarkFailed(f"{self._method}: {refusal}", remedy=""))
        else:
            self.future.set_result(None)

    def cut_off(self) -> None:
        self.answered("the connection was lost")


def _ignore(_connection: Http2Connection) -> None:
    """Ignore the end of a connection: its calls hear of it."""
