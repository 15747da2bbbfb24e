"""One peer of an HTTP/2 port: its requests, windows, settings and end (RFC 9113).

A `Stream` answers a request; the head of the request makes it, and the connection knows nothing of it. Answers that are
ready during a read leave in one piece after the read; others leave at once, and the event loop sends those of one turn
together. A peer that does not read its answers is not read from. Frames that cost more than they bring (resets, pings,
empty frames, data of a stream that was reset) are counted, and too many of them end the connection. A long read ends
the peer's turn: the next one waits until the other connections had theirs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, cast

from twophase.grpc_server.http2.control import Control
from twophase.grpc_server.http2.faults import ConnectionFault, StreamFault
from twophase.grpc_server.http2.frames import (
    DEFAULT_WINDOW,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    INTERNAL_ERROR,
    NO_ERROR,
    PADDED,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    goaway,
    reset,
    settings,
    window_update,
)
from twophase.grpc_server.http2.gone import GoneTransport
from twophase.grpc_server.http2.headers import Blocks, Malformed, require_regular
from twophase.grpc_server.http2.limits import HEAD_BYTES_FREE, RECEIVE_WINDOW, TURN_BYTES, TURN_FIELDS
from twophase.grpc_server.http2.long_messages import LongMessages
from twophase.grpc_server.http2.owner import Owner
from twophase.grpc_server.http2.reader import NotHttp2, unpadded
from twophase.grpc_server.http2.stream import Stream
from twophase.http_client.byte_budget import NO_ROOM

_RESET_REMEMBERED_MAX: Final = 256
_SKIPPED_REMEMBERED_MAX: Final = 16
_PLAIN_WORDS: Final = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncontent-type: text/plain\r\n\r\n"
    b"this port speaks HTTP/2 only, for gRPC.\n"
)


class Connection(Control, asyncio.Protocol):
    """One peer; see the module. The port creates one for each accepted connection."""

    def __init__(self, port: Owner) -> None:
        super().__init__()
        self.port = port
        self.limits = port.limits
        self.streams: dict[int, Stream] = {}
        self.now_s = self.heard_s = self.idle_s = port.now_s
        self._transport = cast("asyncio.Transport", None)
        self._blocks = Blocks(port.known)
        self._last = 0
        self._window = RECEIVE_WINDOW
        self._long = LongMessages(self.widen, self.limits.long_bytes_max)
        self._heads: dict[int, int] = {}
        """The bytes of long headers, by stream, as far as no other request shares them."""
        self._reset: deque[int] = deque(maxlen=_RESET_REMEMBERED_MAX)
        self._skipped: deque[tuple[int, int]] = deque(maxlen=_SKIPPED_REMEMBERED_MAX)
        self._out: list[bytes] = []
        self._later = b""  # the rest of a read, for the next turn
        self._turn_fields = 0  # the number of fields that ends the turn
        self._turns = port.turns.of("")
        self.address = ""
        """The peer's, without its port; empty for a peer that has none."""
        self._account = port.budget.account("")
        self._reading = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the peer; beyond the bound, cut it off."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._turns = self.port.turns.of(self.address)
        self._account = self.port.budget.account(self.address, self.limits.per_address_percent)
        if not self.port.joined(self):
            self.deaf = True
            self._transport.abort()

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The peer's verified certificate; None without one."""
        return cast("Mapping[str, Any] | None", self._transport.get_extra_info("peercert"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's
        """Forget the peer. Requests that were handed over continue, unanswered."""
        self.gone = self.deaf = True
        self._later, self.tired = b"", False
        self.outbox.close()
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self.keep(stream, 0)
            stream.cut()
        self._long.clear()
        self._heads.clear()
        self._account.release()
        self.port.left(self)
        self._transport = GoneTransport(self._transport)

    def data_received(self, data: bytes) -> None:
        """Read whole frames; the answers that they cause are sent in one piece.

        The rest of a long read waits for the next turn.
        """
        if self._later or self.tired or self.held:
            self._later += data
            return
        is_long = len(data) >= TURN_BYTES
        if is_long:
            self._end_turn()
            data, self._later = data[:TURN_BYTES], data[TURN_BYTES:]
        if self.deaf:
            return
        self._turn_fields = self._blocks.fields + TURN_FIELDS
        self.now_s = self.heard_s = self.port.now_s
        self._reading = True
        try:
            self.feed(data)
        except ConnectionFault as fault:
            self.give_up(fault.code, fault.text)
        except NotHttp2 as other:
            if other.is_http_1:
                self.write(_PLAIN_WORDS)
            self._close()
        except Exception as error:  # noqa: BLE001 -- one peer's fault, or the server's, must not take the others along
            self.port.crashed(error)
            self.give_up(INTERNAL_ERROR, "internal error")
        self._reading = False
        if self._out:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self.neighbours.left < 0 and not self.deaf:
            self.held = True
            self._transport.pause_reading()
        elif self.tired and not is_long and not self._transport.is_closing():
            self._end_turn()

    def _end_turn(self) -> None:
        self._transport.pause_reading()
        self._turns.add(self.begin_turn)

    def begin_turn(self) -> None:
        """Continue the read, then read again: the other connections had their turn."""
        if self.gone or self.held or self.outbox.paused or self._transport.is_closing():
            return
        tired, self.tired = self.tired, False
        later, self._later = self._later, b""
        if tired:
            self.data_received(b"")
            self._later = later
            if later and not self.tired:
                self._end_turn()
        elif later:
            self.data_received(later)
        waits = self._later or self.tired or self.held or self.outbox.paused or self._transport.is_closing()
        if len(later) < TURN_BYTES and not waits:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Read no more requests of a peer that does not read its answers."""
        self.paused_s = self.port.now_s
        self.outbox.paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again: the peer reads its answers again."""
        self.paused_s = None
        self.outbox.paused = False
        if self._later or self.tired:
            self._turns.add(self.begin_turn)
        elif not self.held:
            self._transport.resume_reading()
        self.outbox.release()

    def write(self, data: bytes) -> None:
        """Send now, or at the end of the current read."""
        if self._reading:
            self._out.append(data)
        elif not self.gone and self.linger_s is None:
            self._transport.write(data)

    def take_greeting(self) -> None:
        """Send this side's settings."""
        self.write(settings(self.port.settings))
        if RECEIVE_WINDOW > DEFAULT_WINDOW:
            self.write(window_update(0, RECEIVE_WINDOW - DEFAULT_WINDOW))

    def take_block(self, flags: int, stream: int, block: bytes) -> None:
        """Handle the headers of a request, or the trailers behind a request."""
        if stream <= self._last:
            self._trailers(flags, stream, block)
            return
        if not stream & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "a stream of an even number")
        if stream > self._last + 2:
            self._skipped.append((self._last + 1, stream - 1))
            self._free += stream - self._last - 2  # numbers left out are no requests
        self._last = stream
        head = self._blocks.known.get(block)
        if head is None:
            try:
                head = self._blocks.read(block)
            except Malformed as error:
                raise StreamFault(stream, PROTOCOL_ERROR, str(error)) from error
            finally:
                self.tired = self._blocks.fields > self._turn_fields
            if self._blocks.size > HEAD_BYTES_FREE:
                self._keep_head(stream, self._blocks.size)
        if self.leaving:
            self._reset.append(stream)
            return
        if len(self.streams) >= self.limits.streams_max:
            raise StreamFault(stream, REFUSED_STREAM, "too many requests at once")
        self.streams[stream] = request = head.begin(self, stream, head)
        if head.eager:
            request.started()
        if flags & END_STREAM:
            self._end(request, b"")

    def take_data(self, flags: int, stream: int, payload: bytes) -> None:
        """Handle a piece of a request."""
        size = len(payload)
        self._window -= size
        if self._window < RECEIVE_WINDOW >> 1:
            if self._window < 0:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "more than the connection's window")
            self.write(window_update(0, RECEIVE_WINDOW - self._window))
            self._window = RECEIVE_WINDOW
        request = self.streams.get(stream)
        if request is None:
            self._data_of_none(flags, stream)
            return
        if request.ended:
            raise StreamFault(stream, STREAM_CLOSED, "data after the end")
        request.window -= size
        if request.window < 0:
            raise StreamFault(stream, FLOW_CONTROL_ERROR, "more than the stream's window")
        if flags & PADDED:
            payload = unpadded(flags, payload)
        if request.owed >= 0:
            request.owed -= len(payload)
            if request.owed < 0:
                raise StreamFault(stream, PROTOCOL_ERROR, "more than the content-length")
        if flags & END_STREAM:
            self._end(request, payload)
        elif payload:
            request.received(payload, ended=False)
        else:
            self.odd()

    def _end(self, request: Stream, payload: bytes) -> None:
        if request.owed > 0:
            raise StreamFault(request.number, PROTOCOL_ERROR, "less than the content-length")
        request.ended = True
        request.received(payload, ended=True)

    def _data_of_none(self, flags: int, stream: int) -> None:
        """Handle data of a stream that is not open.

        Data of a stream that this side has ended was already under way.
        """
        self._require_begun(stream)
        if stream not in self._reset:
            raise StreamFault(stream, STREAM_CLOSED, "data on a closed stream")
        self._under_way(flags, stream)

    def _under_way(self, flags: int, stream: int) -> None:
        """Drop a frame of a stream that this side has reset, and count it.

        The end of the stream is not counted: a proper peer may send it, once.
        """
        if flags & END_STREAM:
            self._reset.remove(stream)
        else:
            self.odd()

    def _require_begun(self, stream: int) -> None:
        if not stream or stream > self._last or not stream & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "a frame of a stream that was never begun")

    def _trailers(self, flags: int, stream: int, block: bytes) -> None:
        """Check and drop the trailers of a request.

        Headers that no peer may send there are refused.
        """
        fields = self._blocks.decode(block)
        self.tired = self._blocks.fields > self._turn_fields
        request = self.streams.get(stream)
        if request is None:
            if stream in self._reset:
                self._under_way(flags, stream)
                return
            if not stream & 1 or any(first <= stream <= last for first, last in self._skipped):
                raise ConnectionFault(PROTOCOL_ERROR, "a stream with a number that has passed")
            raise ConnectionFault(STREAM_CLOSED, "headers on a closed stream")
        if request.ended:
            raise StreamFault(stream, STREAM_CLOSED, "headers after the end")
        if not flags & END_STREAM:
            raise StreamFault(stream, PROTOCOL_ERROR, "headers in the middle of a request")
        try:
            for name, value in fields:
                require_regular(name, value)
        except Malformed as error:
            raise StreamFault(stream, PROTOCOL_ERROR, str(error)) from error
        self._end(request, b"")

    def widen(self, stream: Stream, by: int) -> None:
        """Let the peer send `by` more of a stream's data."""
        stream.window += by
        self.write(window_update(stream.number, by))

    def admit(self, stream: Stream, by: int) -> None:
        """Let one message through that is longer than the window.

        It passes at once, or when other long messages are whole.
        """
        self._long.admit(stream, by)

    def admitted(self, stream: Stream) -> None:
        """Note that a long message is whole, or given up."""
        self._long.admitted(stream)

    def keep(self, stream: Stream, size: int) -> bool:
        """Count `size` bytes of a request that is not whole.

        Returns False when the budget of all requests does not suffice.
        """
        account = self._account
        if not account.keep(account.kept - stream.kept + size):
            return False
        stream.kept = size
        return True

    def _keep_head(self, stream: int, size: int) -> None:
        """Count the headers of a request until it is answered; raises StreamFault."""
        if not self._account.keep(self._account.kept + size):
            raise StreamFault(stream, REFUSED_STREAM, NO_ROOM)
        self._heads[stream] = size

    def _release_head(self, stream: int) -> None:
        self._account.keep(self._account.kept - self._heads.pop(stream, 0))

    def over(self, stream: Stream) -> None:
        """Note that the answer on a stream has been sent.

        The rest of an unfinished request is not wanted.
        """
        self._drop(stream)
        if not stream.ended:
            self._reset.append(stream.number)
            self.write(reset(stream.number, NO_ERROR))
        if not self.streams:
            self.idle_s = self.port.now_s
            if self.leaving:
                self._close()

    def take_fault(self, fault: StreamFault) -> None:
        """Reset a stream, and count it."""
        self.write(reset(fault.stream, fault.code))
        self._reset.append(fault.stream)
        self._cut(fault.stream)
        self._release_head(fault.stream)
        self.odd()

    def take_reset(self, stream: int) -> None:
        """Drop a request whose answer the peer does not want."""
        self._require_begun(stream)
        if stream in self.streams:
            self._cut(stream)
        self.odd()

    def _cut(self, number: int) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            self._drop(stream)
            self.outbox.forget(stream)
            stream.cut()
            if not self.streams:
                self.idle_s = self.port.now_s
                if self.leaving:
                    self._close()

    def _drop(self, stream: Stream) -> None:
        self.streams.pop(stream.number, None)
        if stream.granted or stream.asks:
            self.admitted(stream)
        if stream.kept:
            self.keep(stream, 0)
        if self._heads:
            self._release_head(stream.number)

    def leave(self) -> None:
        """Accept no more requests; close when those under way are answered."""
        if self.leaving or self.deaf:
            return
        self.leaving = True
        if self.greeted:
            self.write(goaway(self._last, NO_ERROR, "the server is going away"))
        if not self.streams:
            self._close()

    def give_up(self, code: int, text: str) -> None:
        """End the connection for a fault."""
        if self.deaf:
            return
        if self.greeted:
            self.write(goaway(self._last, code, text))
        self._close()

    def cut(self) -> None:
        """End the connection at once."""
        self.deaf = True
        self._transport.abort()

    def _close(self) -> None:
        """Close so that what was written arrives.

        A socket closed with unread bytes resets the connection.
        """
        if self.deaf:
            return
        self.deaf = True
        self.linger_s = self.port.now_s
        self.outbox.close()
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self.keep(stream, 0)
            stream.cut()
        self._heads.clear()
        self._account.release()
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out = []
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the peer has gone at this very moment
            self._transport.abort()
