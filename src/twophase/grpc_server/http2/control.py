"""The frames of a connection that carry no request.

They are settings, pings, windows and resets; their rate is bounded.
"""

from __future__ import annotations

import abc
import math
from typing import Any, Final

from twophase.grpc_server.http2.faults import ConnectionFault, StreamFault
from twophase.grpc_server.http2.frames import (
    ACK,
    CONTINUATION,
    DEFAULT_FRAME_BYTES,
    ENABLE_PUSH,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES_MAX,
    FRAME_SIZE_ERROR,
    GOAWAY,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    NUMBER_MAX,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from twophase.grpc_server.http2.headers import Blocks, Known
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.outbox import Outbox
from twophase.grpc_server.http2.reader import FrameReader
from twophase.grpc_server.http2.stream import Head, Stream
from twophase.http_client.turns import LONG_BYTES

_SMALL_UPDATE: Final = 256
_SHUT_LOOKED_AT: Final = 64
"""Streams that a change of all windows looks at for the cost of one odd frame."""
_SETTINGS_MAX: Final = 64
"""Bound on the entries of a SETTINGS frame; the standards define fewer than 20."""
_PAYLOAD: Final = b"twophase"


class Neighbours:
    """The connections of one peer address.

    `reserved`: those on reserved places, which are not among `connections`.
    `left`: the frames that bring nothing which they may still send until the next sweep, counted as
    `Limits.address_frames_max` says.
    """

    __slots__ = ("connections", "left", "reserved")

    def __init__(self, left: float = math.inf) -> None:
        self.connections = self.reserved = 0
        self.left = left


class Control(FrameReader):
    """The control frames; see the module. `Connection` is the rest of it."""

    limits: Limits
    streams: dict[int, Stream]
    now_s: float
    heard_s: float
    idle_s: float
    _blocks: Blocks[Head]
    _last: int

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(self.write, self.over)
        self.neighbours = Neighbours()
        self.held = False
        """True until the next sweep: its address has sent enough."""
        self.leaving = False
        self.gone = False
        self.paused_s: float | None = None
        self.linger_s: float | None = None
        self._oddities = self._updates = self._unfolded = self._free = 0
        self._settled = self._asked = False

    def confine(self, known: Known[Any]) -> None:
        """Give its requests another meaning; called before the first of them."""
        self._blocks = Blocks(known)

    def take_other(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Handle a frame that is neither DATA nor HEADERS."""
        if kind == WINDOW_UPDATE:
            self._widened(stream, payload)
        elif kind == RST_STREAM:
            _require(len(payload) == 4, FRAME_SIZE_ERROR, "RST_STREAM of a wrong length")
            self.take_reset(stream)
        elif kind == SETTINGS:
            self._take_settings(flags, stream, payload)
        elif kind == PING:
            self._pinged(flags, stream, payload)
        elif kind == PRIORITY:
            self._prioritized(stream, payload)
        elif kind == GOAWAY:
            _require(not stream, PROTOCOL_ERROR, "GOAWAY of a stream")
            _require(len(payload) >= 8, FRAME_SIZE_ERROR, "GOAWAY of a wrong length")
            self.leave()
        elif kind in {PUSH_PROMISE, CONTINUATION}:
            raise ConnectionFault(PROTOCOL_ERROR, "a frame that no client may send here")
        else:
            self.odd()  # unknown kinds are ignored (RFC 9113, 5.5)

    def _widened(self, stream: int, payload: bytes) -> None:
        _require(len(payload) == 4, FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong length")
        is_free = self._is_free()
        if not is_free:
            self._updates += 1
            self.neighbours.left -= 1
            if self._updates > self.limits.updates_max:
                raise ConnectionFault(ENHANCE_YOUR_CALM, "too many changes of a window")
        by = int.from_bytes(payload, "big") & NUMBER_MAX
        outbox = self.outbox
        if by < _SMALL_UPDATE and outbox.waits and not is_free:
            self.odd()
        if not stream:
            _require(by > 0, PROTOCOL_ERROR, "a window that does not change")
            outbox.window += by
            _require(outbox.window <= NUMBER_MAX, FLOW_CONTROL_ERROR, "a window too large")
            outbox.release()
        else:
            request = self.streams.get(stream)
            if request is None:
                self._require_begun(stream)
                return
            if not by:
                raise StreamFault(stream, PROTOCOL_ERROR, "a window that does not change")
            request.debt -= by
            if outbox.initial - request.debt > NUMBER_MAX:
                raise StreamFault(stream, FLOW_CONTROL_ERROR, "a window too large")
            outbox.widened(request)

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        _require(not stream, PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & ACK:
            _require(not payload, FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
            if self._settled:
                self.odd()
            self._settled = True
            self._blocks.settled()
            return
        _require(len(payload) % 6 == 0, FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
        _require(len(payload) <= 6 * _SETTINGS_MAX, ENHANCE_YOUR_CALM, f"more than {_SETTINGS_MAX} settings in a frame")
        for at in range(0, len(payload), 6):
            self._setting(int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big"))
        self.odd(1 + self.outbox.shut // _SHUT_LOOKED_AT)
        self.write(frame(SETTINGS, ACK))
        if self.outbox.waits:
            self.outbox.release(all_streams=True)

    def _setting(self, key: int, value: int) -> None:
        if key == INITIAL_WINDOW_SIZE:
            _require(value <= NUMBER_MAX, FLOW_CONTROL_ERROR, "a window too large")
            self.outbox.initial = value
        elif key == MAX_FRAME_SIZE:
            _require(DEFAULT_FRAME_BYTES <= value <= FRAME_BYTES_MAX, PROTOCOL_ERROR, "no size that frames can have")
            self.outbox.frame_bytes = min(value, DEFAULT_FRAME_BYTES)
        elif key == ENABLE_PUSH:
            _require(value <= 1, PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")

    def _pinged(self, flags: int, stream: int, payload: bytes) -> None:
        _require(not stream, PROTOCOL_ERROR, "PING of a stream")
        _require(len(payload) == 8, FRAME_SIZE_ERROR, "PING of a wrong length")
        if not self._is_free():
            self.odd()
        if not flags & ACK:
            self.write(frame(PING, ACK, 0, payload))

    def _prioritized(self, stream: int, payload: bytes) -> None:
        _require(stream > 0, PROTOCOL_ERROR, "PRIORITY without a stream")
        self.odd()
        if len(payload) != 5:
            raise StreamFault(stream, FRAME_SIZE_ERROR, "PRIORITY of a wrong length")
        if int.from_bytes(payload[:4], "big") & NUMBER_MAX == stream:
            raise StreamFault(stream, PROTOCOL_ERROR, "a stream that depends on itself")

    def _is_free(self) -> bool:
        """Return True for two frames for each request begun since the last sweep.

        A client that measures its connection, as grpc-go does, sends a window update and a ping for each answer. The
        numbers of requests go up by two.
        """
        is_free = self._free < self._last
        self._free += is_free
        return is_free

    def odd(self, count: int = 1) -> None:
        """Count odd frames; raises ConnectionFault."""
        self._oddities += count
        self.neighbours.left -= count * self.limits.updates_max / self.limits.oddities_max
        if self._oddities > self.limits.oddities_max:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many frames that bring nothing")

    def unfolded(self, size: int) -> None:
        """Count the bytes that a compressed message became.

        Each 64 KiB count as an odd frame, and end the turn.

        Raises:
            ConnectionFault: too much in a second.
        """
        self._unfolded += size
        frames, self._unfolded = divmod(self._unfolded, LONG_BYTES)
        if frames:
            self.tired = True
            self.odd(frames)

    def check(self, now_s: float) -> None:
        """End what takes too long; called by the port's sweep."""
        limits = self.limits
        self.now_s = now_s
        self._oddities = self._updates = self._blocks.decoded = 0
        self._free = self._last
        if self.held:
            self.held = False
            self.begin_turn()
        if self.linger_s is not None:
            if now_s - self.linger_s > limits.linger_s:
                self.cut()
        elif not self.greeted:
            if now_s - self.idle_s > limits.handshake_s:
                self.cut()
        elif self.paused_s is not None or self.outbox.answer_waits:
            since_s = self.outbox.moved_s if self.paused_s is None else self.paused_s
            if now_s - since_s > limits.write_s:
                self.cut()
        elif not self.streams:
            if now_s - self.idle_s > limits.idle_s:
                self.leave()
        else:
            self._check_streams(now_s)

    def _check_streams(self, now_s: float) -> None:
        for stream in list(self.streams.values()):
            if not stream.ended and now_s - stream.since_s > self.limits.request_s:
                stream.late()
        silent_s = now_s - self.heard_s
        if silent_s <= self.limits.idle_s:
            self._asked = False
        elif not self._asked:
            self._asked = True
            self.write(frame(PING, payload=_PAYLOAD))
        elif silent_s > 2 * self.limits.idle_s:
            self.cut()

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Send the frames."""

    @abc.abstractmethod
    def over(self, stream: Stream) -> None:
        """Note that an answer has been sent."""

    @abc.abstractmethod
    def take_reset(self, stream: int) -> None:
        """Drop a request whose answer the peer does not want."""

    @abc.abstractmethod
    def begin_turn(self) -> None:
        """Continue the read, then read again: the other connections had their turn."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Accept no more requests."""

    @abc.abstractmethod
    def cut(self) -> None:
        """End the connection at once."""

    @abc.abstractmethod
    def _require_begun(self, stream: int) -> None:
        """Refuse a stream that was never begun; raises ConnectionFault."""


def _require(holds: bool, code: int, text: str) -> None:  # noqa: FBT001 -- reads as a sentence
    if not holds:
        raise ConnectionFault(code, text)
