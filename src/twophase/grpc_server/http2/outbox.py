"""The sending side of a connection (RFC 9113, 5.2).

Answers leave at once where the peer's windows allow, in pieces as they open. Promise: no window is ever exceeded, what
belongs to one stream leaves in its order, and what waits is bounded by the streams that are open, each with one answer
or one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twophase.grpc_server.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_STREAM,
    frame,
    header_frames,
)
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.http2.stream import Stream

_OPEN: Final = None
_Write = Callable[[bytes], None]
_Over = Callable[[Stream], None]


class Outbox:
    """Sends the answers of one connection on its streams.

    Arguments:
        write: takes frames, in their order.
        over: called when the answer on a stream has been sent to its end.
    """

    __slots__ = ("_held", "_over", "_shut", "_write", "frame_bytes", "initial", "moved_s", "paused", "window")

    def __init__(self, write: _Write, over: _Over) -> None:
        self._write = write
        self._over = over
        self.window = DEFAULT_WINDOW
        """Bytes that the peer accepts on all streams together."""
        self.initial = DEFAULT_WINDOW
        """Bytes that the peer accepts on one stream."""
        self.frame_bytes = DEFAULT_FRAME_BYTES
        self.paused = False
        """True while the socket takes no more.

        A window may be larger than what the server should keep for a peer.
        """
        self.moved_s = 0.0
        """Time when something that had to wait was last queued or sent."""
        self._held: dict[int, _Held] = {}
        """Data that waits for the socket or the common window, by stream, in order."""
        self._shut: dict[int, _Held] = {}
        """Data that waits for the window of its own stream.

        A change of another window does not look at it.
        """

    @property
    def waits(self) -> bool:
        """True while something could not be sent yet."""
        return bool(self._held or self._shut)

    @property
    def shut(self) -> int:
        """The number of streams that wait for their own window."""
        return len(self._shut)

    @property
    def answer_waits(self) -> bool:
        """True while the end of an answer could not be sent yet.

        A stream that goes on may wait for its reader without limit.
        """
        return any(held.trailers is not None for waiting in (self._held, self._shut) for held in waiting.values())

    def answer(self, stream: Stream, reply: Response) -> None:
        """Send a whole answer."""
        size = len(reply.body)
        if reply.parts and not self.waits and size <= self.window and size <= self.initial - stream.debt:
            self.window -= size
            self._write(stream.number.to_bytes(4, "big").join(reply.parts))
            self._over(stream)
            return
        self.headers(stream, reply.headers, ends=not reply.body and not reply.trailers)
        if reply.body or reply.trailers:
            self._put(_Held(stream, reply.body, reply.trailers, None))

    def headers(self, stream: Stream, block: bytes, *, ends: bool = False) -> None:
        """Send headers, or trailers, which leave behind data that waits."""
        held = self._held.get(stream.number) or self._shut.get(stream.number)
        if held is not None:
            assert ends, "headers come before data"
            held.trailers = block
            self.moved_s = stream.connection.now_s
            return
        self._write(header_frames(stream.number, block, END_STREAM if ends else 0))
        if ends:
            self._over(stream)

    async def message(self, stream: Stream, data: bytes) -> None:
        """Send data; return when the peer's windows and the socket have let it through.

        One at a time on a stream. The data leaves also when this is cancelled.
        """
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(_Held(stream, data, _OPEN, sent))
        await sent

    def _put(self, held: _Held) -> None:
        number = held.stream.number
        assert number not in self._held, "one at a time on a stream"
        assert number not in self._shut, "one at a time on a stream"
        if not self.waits:
            self.moved_s = held.stream.connection.now_s
        self._shut[number] = held
        self.widened(held.stream)

    def forget(self, stream: Stream) -> None:
        """Drop what waits for a stream that is no more."""
        for waiting in (self._held, self._shut):
            held = waiting.pop(stream.number, None)
            if held is not None:
                held.drop()

    def close(self) -> None:
        """Drop everything: the connection is no more."""
        dropped = [*self._held.values(), *self._shut.values()]
        self._held, self._shut = {}, {}
        for one in dropped:
            one.drop()

    def widened(self, stream: Stream) -> None:
        """Send as much of one stream as the windows allow: its own has changed."""
        held = self._shut.pop(stream.number, None)
        if held is not None:
            if self._send(held):
                held.done(self._over)
            else:
                self._keep(held)

    def release(self, *, all_streams: bool = False) -> None:
        """Send as much as the windows allow.

        `all_streams`: the windows of all streams have changed.
        """
        if all_streams:
            self._held |= self._shut
            self._shut = {}
        ended: list[_Held] = []
        while self._held and self.window > 0 and not self.paused:
            number, held = next(iter(self._held.items()))
            if self._send(held):
                ended.append(held)
            elif self._room(held) > 0:
                break
            else:
                self._shut[number] = held
            del self._held[number]
        for held in ended:
            held.done(self._over)

    def _keep(self, held: _Held) -> None:
        waiting = self._held if self._room(held) > 0 else self._shut
        waiting[held.stream.number] = held

    def _room(self, held: _Held) -> int:
        """Return how much the window of its own stream allows."""
        return self.initial - held.stream.debt

    def _send(self, held: _Held) -> bool:
        """Send what the windows allow; True when all of it has been sent."""
        stream = held.stream
        while held.left:
            size = min(len(held.left), self.window, self.initial - stream.debt, self.frame_bytes)
            if size <= 0 or self.paused:
                return False
            piece, held.left = bytes(held.left[:size]), held.left[size:]
            self.window -= size
            stream.debt += size
            self.moved_s = stream.connection.now_s
            flags = END_STREAM if not held.left and held.trailers == b"" else 0
            self._write(frame(DATA, flags, stream.number, piece))
        if held.trailers:
            self._write(header_frames(stream.number, held.trailers, END_STREAM))
        return True


class _Held:
    """Data, and what follows it: trailers, the end of the stream, or more data.

    Empty trailers are the end of the stream; None stands for more data.
    """

    __slots__ = ("left", "sent", "stream", "trailers")

    def __init__(self, stream: Stream, data: bytes, trailers: bytes | None, sent: asyncio.Future[None] | None) -> None:
        self.stream = stream
        self.left = memoryview(data)
        self.trailers = trailers
        self.sent = sent

    def done(self, over: _Over) -> None:
        if self.sent is not None and not self.sent.done():
            self.sent.set_result(None)
        if self.trailers is not None:
            over(self.stream)

    def drop(self) -> None:
        if self.sent is not None:
            self.sent.cancel()
