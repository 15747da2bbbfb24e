"""The services that the coordinators call: check-back and branches.

The ledger answers for both.
"""

from __future__ import annotations

import asyncio
from typing import cast
from urllib.parse import parse_qs, urlsplit

import httptools

from benchmarks.servers.ports import KeptPort
from tests.crash.nodes.ledger import Ledger

_REFUSES_FIRST = {0: 500, 1: 425}
"""The first answers of some branches, by the message's number modulo twenty.

One of twenty messages finds its branch in trouble at first, and one finds it busy.
"""


def number_of(gid: str) -> int:
    """Return the number of a message, which decides its fate."""
    return int(gid.rpartition("-")[2])


class _Connection(asyncio.Protocol):
    def __init__(self, ledger: Ledger, transports: set[asyncio.Transport]) -> None:
        self._ledger = ledger
        self._transports = transports
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transports.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._transport is not None, "it was made"
        self._transports.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_message_complete(self) -> None:
        target = urlsplit(self._url.decode())
        asked = parse_qs(target.query)
        gid = asked["gid"][0]
        if target.path == "/check":
            status = self._ledger.check(gid)
        else:
            refuses_first = _REFUSES_FIRST.get(number_of(gid) % 20)
            status = self._ledger.called(gid, int(asked["branch_id"][0]) - 1, refuses_first=refuses_first)
        assert self._transport is not None, "connected"
        self._transport.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status)


class Partners:
    """One port for all services."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._server: asyncio.Server | None = None
        self._transports: set[asyncio.Transport] = set()
        # Nodes call here until they are killed, so no other test may get the port meanwhile.
        self._kept = KeptPort()
        self.port = self._kept.number

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._ledger, self._transports), "127.0.0.1", self.port
        )

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in self._transports:
            transport.abort()
