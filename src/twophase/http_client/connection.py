"""One keep-alive connection: one request at a time, with its response.

Promise: bytes never reach a call they were not sent for. A connection is used again only when the response ended where
HTTP says it ends, the peer agreed to continue, and the whole request had left; after anything else (bytes without a
request, an early answer, an error of any kind) it is dropped.

Two limits are HTTP/1.1's own and cannot be removed here: a response sent unasked is recognised only when it arrives
before the next request leaves, and a body that ends with the connection cannot be distinguished from one cut short.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Protocol, cast

from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase.http_client.reader import ResponseReader
from twophase.http_client.request import PendingCall
from twophase.http_client.tls_failure import tls_failure

_PIECE_BYTES = 64 * 1024
"""Bytes of one write of a body.

A longer body is written in pieces, as fast as the peer reads, instead of being copied as a whole.
"""


class Owner(Protocol):
    """The pool a connection belongs to.

    Exactly one of `lost` and `retry` ends each connection that was made.
    """

    def connected(self, connection: Connection) -> None:
        """Note that the connection can take its first request."""

    def released(self, connection: Connection) -> None:
        """Note that the connection can take another request."""

    def lost(self, connection: Connection) -> None:
        """Note that the connection is gone."""

    def retry(self, connection: Connection, call: PendingCall) -> None:
        """Note that the connection is gone, and retry `call` once on a fresh one.

        The connection was stale, and ends as with `lost`.
        """


class Connection(asyncio.Protocol):
    """The event loop's protocol for one connection."""

    __slots__ = (
        "_call",
        "_owner",
        "_paused",
        "_reader",
        "_transport",
        "_unsent",
        "_used",
        "idle_since_s",
        "made",
        "reserved_for",
    )

    def __init__(self, owner: Owner, reader: ResponseReader, reserved_for: PendingCall | None) -> None:
        self.made = False
        """True when the peer has accepted it.

        From then on `owner.lost` or `owner.retry` reports its end.
        """
        self.idle_since_s = 0.0
        self.reserved_for = reserved_for
        """The call it is opened for when no other connection will do."""
        self._owner = owner
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self._call: PendingCall | None = None
        self._unsent: memoryview | None = None
        self._paused = False
        self._used = False

    def send(self, call: PendingCall) -> bool:
        """Send the request of `call`, which receives its answer or the reason for none.

        Returns False, without any effect, when the connection is ending.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        assert self._call is None
        self._call = call
        call.carrier = self
        self._reader.begin(is_head=call.is_head, body_bytes_max=call.response_bytes_max)
        if len(call.body) <= _PIECE_BYTES:
            transport.write(call.head + call.body)
        else:
            transport.write(call.head)
            self._unsent = memoryview(call.body)
            self._write_on()
        return True

    def _write_on(self) -> None:
        while self._unsent is not None and not self._paused and self._transport is not None:
            piece, rest = self._unsent[:_PIECE_BYTES], self._unsent[_PIECE_BYTES:]
            self._unsent = rest if len(rest) else None
            self._transport.write(piece)

    def _sent(self, transport: asyncio.Transport) -> bool:
        return self._unsent is None and not transport.get_write_buffer_size()

    def let_go(self, call: PendingCall) -> str:
        """End a call before its answer: the connection cannot be used any more."""
        assert call is self._call
        self._call = None
        if self._reader.started:
            waited_for = "the rest of the answer"
        elif self._transport is not None and not self._sent(self._transport):
            waited_for = "the peer to read the request"
        else:
            waited_for = "an answer"
        self.abort()
        return waited_for

    def abort(self) -> None:
        """Drop the connection with the rest that it has to send.

        Idle ones end this way too: without unread bytes the peer sees an ordinary end, and a TLS peer that does not
        answer the farewell cannot hold the permit.
        """
        self._unsent = None
        if self._transport is not None:
            self._transport.abort()

    def end(self, error: HttpError) -> None:
        """Drop the connection; the call under way on it, if any, gets `error`."""
        call, self._call = self._call, None
        self.abort()
        if call is not None:
            call.finish(error)

    def abandon(self) -> None:
        """Close the connection of an event loop that is closed."""
        transport, self._transport = self._transport, None
        if transport is not None:
            close_socket_of(transport)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection is made, and the TLS handshake done."""
        self._transport = cast("asyncio.Transport", transport)
        self.made = True
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer under way.

        Without a call they are an answer to nothing.
        """
        call = self._call
        if call is None:
            self.abort()
            return
        try:
            response = self._reader.feed(data)
        except HttpError as error:
            self.end(error)
            return
        if response is not None:
            transport = self._transport
            assert transport is not None
            self._call = None
            # Free the connection first, so that the next call of the caller's function finds it.
            if self._reader.reusable and self._unsent is None and not transport.get_write_buffer_size():
                self._used = True
                self._owner.released(self)
            else:
                self.abort()
            call.finish(response)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection, by either side."""
        call, self._call = self._call, None
        reader = self._reader
        self._transport = None
        self._unsent = None
        response = reader.end_of_stream() if exc is None and call is not None else None
        reader.dispose()
        if call is not None and self._used and not reader.started:
            self._owner.retry(self, call)
            return
        self._owner.lost(self)
        if call is not None:
            if isinstance(exc, ssl.SSLError) and not (self._used or reader.started):
                # TLS 1.3: a server judges the client's certificate after the client's end of the handshake.
                call.finish(tls_failure("the server", exc))
                return
            text = f"the peer closed the connection {reader.progress()}"
            call.finish(response or HttpError(HttpErrorKind.CLOSED, text))

    def pause_writing(self) -> None:
        """Write no more to a peer that reads too slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write on: the peer caught up."""
        self._paused = False
        self._write_on()


def close_socket_of(transport: asyncio.Transport) -> None:
    """Close the socket of a transport whose event loop is closed.

    Such a loop no longer carries out `abort`. uvloop has closed its sockets itself, and shows none of asyncio's.
    """
    held = getattr(transport.get_extra_info("socket"), "_sock", None)
    if isinstance(held, socket.socket):
        held.close()
