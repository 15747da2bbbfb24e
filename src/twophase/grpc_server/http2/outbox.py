"""The sending side of a connection (RFC 9113, 5.2).

Answers leave at once where the peer's windows allow, in pieces as they open. Promise: no window is ever exceeded, what
belongs to one stream leaves in its order, and what waits is bounded by the streams that are open, each with one answer
or one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
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

    __slots__ = ("_held", "_over", "_write", "frame_bytes", "initial", "moved_s", "paused", "window")

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
        self._held: deque[_Held] = deque()

    @property
    def waits(self) -> bool:
        """True while something could not be sent yet."""
        return bool(self._held)

    @property
    def answer_waits(self) -> bool:
        """True while a whole answer could not be sent yet.

        A stream may wait for its reader without limit.
        """
        return any(held.sent is None for held in self._held)

    def answer(self, stream: Stream, reply: Response) -> None:
        """Send a whole answer."""
        size = len(reply.body)
        if reply.parts and not self._held and size <= self.window and size <= self.initial - stream.debt:
            self.window -= size
            self._write(stream.number.to_bytes(4, "big").join(reply.parts))
            self._over(stream)
            return
        self.headers(stream, reply.headers, ends=not reply.body and not reply.trailers)
        if reply.body or reply.trailers:
            self._put(_Held(stream, reply.body, reply.trailers, None))

    def headers(self, stream: Stream, block: bytes, *, ends: bool = False) -> None:
        """Send headers, or the trailers of what has been sent."""
        self._write(header_frames(stream.number, block, END_STREAM if ends else 0))
        if ends:
            self._over(stream)

    async def message(self, stream: Stream, data: bytes) -> None:
        """Send data; return when the peer's windows and the socket have let it through.

        One at a time on a stream.
        """
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(_Held(stream, data, _OPEN, sent))
        await sent

    def _put(self, held: _Held) -> None:
        if not self._held:
            self.moved_s = held.stream.connection.now_s
        self._held.append(held)
        self.release()

    def forget(self, stream: Stream) -> None:
        """Drop what waits for a stream that is no more."""
        for held in [held for held in self._held if held.stream is stream]:
            self._held.remove(held)
            held.drop()

    def close(self) -> None:
        """Drop everything: the connection is no more."""
        held, self._held = self._held, deque()
        for one in held:
            one.drop()

    def release(self) -> None:
        """Send as much as the windows allow."""
        before, self._held = self._held, deque()
        ended: list[_Held] = []
        for held in before:
            if self._send(held):
                ended.append(held)
            else:
                self._held.append(held)
        for held in ended:
            held.done(self._over)

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
