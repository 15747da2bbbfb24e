"""A peer on a connection without a socket.

It sends whatever a test wants, also what no client should send.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from hpack import Decoder, Encoder

from tests.support.memory_transport import MemoryTransport
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.connection import Connection
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.port import Port
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.services import Services
from twophase.grpc_server.status import Ended, Status, ended, framed, success
from twophase.grpc_server.unary import UnaryCall

MESSAGE_BYTES_MAX: Final = 100_000
CALL: Final[tuple[tuple[str, str], ...]] = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/Echo"),
    (":authority", "test"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)
PLAIN: Final = b"".join(frames.field(name.encode(), value.encode()) for name, value in CALL)
"""The headers of a call, in a block that needs no table."""


@dataclass
class Frame:
    """One frame that the server has sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """Return the error code of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[:4] if self.kind == frames.RST_STREAM else self.payload[4:8], "big")


@dataclass
class Peer:
    """A peer of a server with one method, `/s/Echo`.

    The method answers with the message, at once or when the test allows it.
    """

    limits: Limits = field(default_factory=Limits)
    calls_max: int = 10_000
    holds: bool = False
    held: list[tuple[UnaryCall, bytes]] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    crashes: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.services = Services(
            message_bytes_max=MESSAGE_BYTES_MAX,
            header_list_bytes_max=self.limits.header_list_bytes_max,
            calls_max=self.calls_max,
            too_many=lambda text: ended(Status.RESOURCE_EXHAUSTED, text),
            unknown=lambda path: ended(Status.UNIMPLEMENTED, f"no {path}"),
            on_refused=lambda: None,
            on_crash=self.crashes.append,
            crash_end=Ended(Status.UNKNOWN, "our own fault."),
        )
        self.services.unary("/s/Echo", self._echo)
        self.port: Port[Any] = Port(self.services.read, self.limits, self.crashes.append, lambda: None)
        self.connect()

    def connect(self) -> None:
        """Open a new connection."""
        self.transport = MemoryTransport()
        self.connection = Connection(self.port)
        self.connection.connection_made(self.transport)
        self._taken = 0
        self.encoder = Encoder()

    def greet(self, *settings: tuple[int, int], acknowledges: bool = True) -> None:
        """Send the preface and settings."""
        self.send(frames.PREFACE + frames.settings(dict(settings)))
        if acknowledges:
            self.send(frames.frame(frames.SETTINGS, frames.ACK))

    def _echo(self, call: UnaryCall, message: bytes) -> None:
        self.received.append(message)
        if self.holds:
            self.held.append((call, message))
        else:
            call.finish(self.echo(message))

    def echo(self, message: bytes) -> Response:
        """Return the response to this message."""
        return success(message, (("x-size", str(len(message))),))

    def send(self, data: bytes) -> None:
        """Let bytes arrive in one piece, and the server take them in its turns."""
        self.connection.data_received(data)
        while (self.connection._later or self.connection.tired) and not (
            self.connection.held or self.transport.aborted or self.connection.outbox.paused
        ):
            self.connection.begin_turn()

    def call(self, stream: int, message: bytes = b"m", block: bytes = PLAIN) -> bytes:
        """Return the frames of a call."""
        return frames.header_frames(stream, block) + frames.frame(
            frames.DATA, frames.END_STREAM, stream, framed(message)
        )

    @property
    def said(self) -> list[Frame]:
        """Return the frames that the server has sent since the last reading."""
        data = bytes(self.transport.written)
        found = []
        while self._taken + frames.HEAD_BYTES <= len(data):
            high, low, kind, flags, stream = frames.HEAD.unpack_from(data, self._taken)
            stop = self._taken + frames.HEAD_BYTES + (high << 16 | low)
            assert stop <= len(data), "frames are whole"
            found.append(Frame(kind, flags, stream, data[self._taken + frames.HEAD_BYTES : stop]))
            self._taken = stop
        return found

    @property
    def given_up(self) -> int | None:
        """Return the error that ended the connection; None while it lives."""
        return next((frame.code for frame in reversed(self.said) if frame.kind == frames.GOAWAY), None)


class Answer(msgspec.Struct):
    """The answer on one stream."""

    headers: dict[str, str] = {}
    body: bytes = b""
    ended: bool = False


def answers(said: Iterable[Frame]) -> dict[int, Answer]:
    """Return the answers in the frames, by stream."""
    found: dict[int, Answer] = {}
    for frame in said:
        if frame.kind in {frames.HEADERS, frames.DATA}:
            answer = found.setdefault(frame.stream, Answer())
            if frame.kind == frames.HEADERS:
                pairs: Any = Decoder().decode(frame.payload)
                answer.headers |= dict(pairs)
            else:
                answer.body += frame.payload
            answer.ended = answer.ended or bool(frame.flags & frames.END_STREAM)
    return found
