"""One connection whose requests travel in groups.

That is HTTP/1.1 pipelining (RFC 9112 §9.3.2). While requests are under way, others gather; when the last answer has
come, they go together, in one write. A request that finds nothing under way goes at the end of this turn of the event
loop: no request waits for a timer.

Promise: every request ends exactly once, within its timeout, with the answer in its place or with an `HttpError`.
Answers are matched by their order alone, so a connection whose order is in doubt is dropped, with everything under way
on it. As with `client`, a request may reach the peer twice, namely when a kept connection dies before a byte of its
group's answers came; every caller must be able to bear that.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from typing import Final, cast

from twophase.http_client.address import Address
from twophase.http_client.connection import close_socket_of
from twophase.http_client.dial import Dialer
from twophase.http_client.names import Names
from twophase.http_client.outcome import HttpError, HttpErrorKind, OnDone
from twophase.http_client.reader import KnownHeads, ResponseReader
from twophase.http_client.request import PendingCall
from twophase.http_client.timeouts import Deadline, Timeouts

GROUP_MAX: Final = 64
"""Requests in one group: the server reads this many before it answers one."""
GROUP_BYTES_MAX: Final = 256 * 1024
QUEUE_MAX: Final = 10_000
_HEADER_BYTES_MAX: Final = 64 * 1024
_CONNECT_TIMEOUT_MS: Final = 3_000
_IDLE_TIMEOUT_MS: Final = 15_000
_WHOLE_BYTES_MAX: Final = 64 * 1024
"""The longest body that is kept until it is whole; others are read in pieces."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)


class Pipeline:
    """Requests to one server, in groups, on one connection.

    Arguments:
        address: the server.
        loop: the event loop of all calls.
        answer_bytes_max: the longest body of an answer.
        tls: for `https`.
    """

    def __init__(
        self,
        address: Address,
        loop: asyncio.AbstractEventLoop,
        *,
        answer_bytes_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._key = address.key
        self._loop = loop
        self._timeouts = Timeouts(loop)
        self._dialer = Dialer(address, loop, timeout_ms=_CONNECT_TIMEOUT_MS, tls=tls, names=Names())
        self._answer_bytes_max = answer_bytes_max
        self._heads = KnownHeads()
        self._waiting: dict[PendingCall, None] = {}
        self._link: _Link | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._scheduled = False
        self._idle: Deadline | None = None
        self._gone: asyncio.Future[None] | None = None

    def request(self, head: bytes, body: bytes, timeout_ms: int, on_done: OnDone) -> PendingCall:
        """Start a request; `on_done` is called once, later, on the event loop.

        Arguments:
            head: all of it but the body's length, up to `content-length: `.
            body: sent with its length.
            timeout_ms: for everything from now to the last byte of the answer.
            on_done: gets the `HttpResponse`, whatever its status, or an `HttpError`.

        Returns:
            The call, for a caller who may lose interest and `forget` it.
        """
        whole = b"%b%d\r\n\r\n%b" % (head, len(body), body)
        call = PendingCall(whole, b"", on_done, self._timeouts, timeout_ms, is_head=False)
        if self._gone is not None:
            self._loop.call_soon(call.finish, HttpError(HttpErrorKind.CLOSED, "the client is closed"))
        elif len(self._waiting) >= QUEUE_MAX:
            text = f"{QUEUE_MAX} calls wait for {self._key} already"
            self._loop.call_soon(call.finish, HttpError(HttpErrorKind.OVERLOADED, text))
        else:
            call.carrier = self
            self._waiting[call] = None
            if not self._scheduled and (self._link is None or not self._link.in_flight):
                self._scheduled = True
                self._loop.call_soon(self._go)
        return call

    def forget(self, call: PendingCall) -> None:
        """Drop a request that is not sent yet, or the outcome of one that is."""
        if call in self._waiting:
            call.cancel()
        else:
            call.disown()

    def let_go(self, call: PendingCall) -> str:
        """Stop working for a request that ends before its time."""
        if call in self._waiting:
            del self._waiting[call]
            return "its turn" if self._link is not None else "a connection"
        link = self._link
        if link is not None and call in link.in_flight:
            link.in_flight.remove(call)
            link.fail(HttpError(HttpErrorKind.CLOSED, "a request before this one was not answered in time"))
        return "an answer"

    async def close(self) -> None:
        """End every request with an error, and close the connection.

        It may be called again.
        """
        error = HttpError(HttpErrorKind.CLOSED, "the client is closed")
        if self._gone is None:
            self._gone = self._loop.create_future()
            self._fail_waiting(error)
            if self._dialing is not None:
                self._dialing.cancel()
            if self._link is not None:
                self._link.fail(error)
        if self._dialing is not None:
            await asyncio.wait([self._dialing])
        if self._link is not None:
            await self._gone
        self._timeouts.stop()

    def abandon(self) -> None:
        """Close the connection of an event loop that is closed."""
        if self._link is not None:
            self._link.abandon()

    def on_timeout(self) -> None:
        """Close a connection that has been idle for long; called by `Timeouts`."""
        self._idle = None
        if self._link is not None and not self._link.in_flight:
            self._link.abort()

    def _go(self) -> None:
        """Send what has gathered, as one group."""
        self._scheduled = False
        link = self._link
        if not self._waiting or self._gone is not None or (link is not None and link.in_flight):
            return
        if link is None or link.ended:
            if self._dialing is None and link is None:
                self._dialing = self._loop.create_task(self._dialer.dial(self._make))
                self._dialing.add_done_callback(self._dialled)
            return
        if self._idle is not None:
            self._idle.pop(self, None)
            self._idle = None
        group: list[PendingCall] = []
        size_bytes = 0
        for call in self._waiting:
            size_bytes += len(call.head)
            if group and (len(group) >= GROUP_MAX or size_bytes > GROUP_BYTES_MAX):
                break
            group.append(call)
        for call in group:
            del self._waiting[call]
        link.send(group)

    def _make(self) -> _Link:
        reader = ResponseReader(
            body_bytes_max=self._answer_bytes_max, header_bytes_max=_HEADER_BYTES_MAX, heads=self._heads
        )
        return _Link(self, reader, self._heads)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._dialing = None
        if task.cancelled() or self._link is not None:
            return
        error = task.exception()
        if not isinstance(error, HttpError):
            error = HttpError(HttpErrorKind.CONNECT, f"{self._key} closed the connection at once")
        self._fail_waiting(error)

    def _fail_waiting(self, error: HttpError) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.carrier = None
            self._loop.call_soon(call.finish, error)

    # Reports of the connection.

    def connected(self, link: _Link) -> None:
        """Use a new connection."""
        self._link = link
        self._go()

    def answered(self) -> None:
        """Send the next group: the last answer of this one has come."""
        if self._waiting:
            self._go()
        else:
            self._idle = self._timeouts.after(self, _IDLE_TIMEOUT_MS)

    def lost(self, unanswered: list[PendingCall]) -> None:
        """Forget the connection; repeat what it took along unread, on a new one."""
        self._link = None
        if self._gone is not None:
            if not self._gone.done():
                self._gone.set_result(None)
            return
        if unanswered:
            for call in unanswered:
                call.carrier = self
            self._waiting = dict.fromkeys(unanswered) | self._waiting
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._go)


class _Link(asyncio.Protocol):
    """One connection of a pipeline, with the group that is under way on it."""

    def __init__(self, owner: Pipeline, reader: ResponseReader, heads: KnownHeads) -> None:
        self.made = False
        self.ended = False
        self.in_flight: deque[PendingCall] = deque()
        self._owner = owner
        self._reader = reader
        self._heads = heads
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._used = False
        self._of_group = 0

    def send(self, group: list[PendingCall]) -> None:
        """Send a group."""
        assert self._transport is not None, "connected"
        assert not self.in_flight, "one group at a time"
        self.in_flight.extend(group)
        self._of_group = len(group)
        self._transport.write(b"".join([call.head for call in group]))

    def fail(self, error: HttpError) -> None:
        """Drop the connection, and give every request under way an error."""
        calls, self.in_flight = self.in_flight, deque()
        self.abort()
        for call in calls:
            call.carrier = None
            call.finish(error)

    def abort(self) -> None:
        """Drop the connection."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close the connection of an event loop that is closed."""
        transport, self._transport = self._transport, None
        if transport is not None:
            close_socket_of(transport)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection is made, and the TLS handshake done."""
        self._transport = cast("asyncio.Transport", transport)
        self.made = True
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        """Take answers, each for the first request under way."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        start = 0
        while start < len(data):
            if not self.in_flight:
                self.abort()  # an answer to nothing
                return
            stop = self._end_of_answer(data, start)
            if stop > len(data):
                self._rest = data[start:]
                return
            try:
                response = self._reader.feed(data[start:stop])
            except HttpError as error:
                self.fail(error)
                return
            start = stop
            if response is None:
                continue
            reusable = self._reader.reusable
            self._reader.begin()
            call = self.in_flight.popleft()
            call.carrier = None
            self._used = True
            call.finish(response)
            if not reusable:
                self.fail(HttpError(HttpErrorKind.CLOSED, "the peer ended the connection after an answer"))
                return
        if not self.in_flight and not self.ended:
            self._owner.answered()

    def _end_of_answer(self, data: bytes, start: int) -> int:
        """Return the end of the answer that begins at `start`.

        It is beyond the data for an answer that is not whole.
        Where its head gives no length, the reader finds the end.
        """
        if self._reader.started:
            return len(data)
        end = data.find(_END_OF_HEAD, start) + len(_END_OF_HEAD)
        if end < len(_END_OF_HEAD):
            return len(data) if len(data) - start > _HEADER_BYTES_MAX else len(data) + 1
        known = self._heads.get(data[start:end])
        if known is not None:
            return end + known.body_bytes
        length = _CONTENT_LENGTH.search(data, start, end)
        if length is None or int(length[1]) > _WHOLE_BYTES_MAX:
            return len(data)  # the reader keeps every bound
        return end + int(length[1])

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is gone."""
        self.ended = True
        calls, self.in_flight = list(self.in_flight), deque()
        reader = self._reader
        untouched = len(calls) == self._of_group and not reader.started and not self._rest
        stale = self._used and untouched
        self._owner.lost(calls if stale else [])
        if not stale and calls:
            response = reader.end_of_stream() if exc is None else None
            text = f"the peer closed the connection {reader.progress()}"
            for call in calls:
                call.carrier = None
                call.finish(response or HttpError(HttpErrorKind.CLOSED, text))
                response = None
        reader.dispose()
