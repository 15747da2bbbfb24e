"""One request and its answer on a connection: its record and its handler.

A handler is a subclass of `Stream`; the connection calls it, and it knows the connection only as a `Peer`. So nothing
that answers requests imports the connection.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twophase.grpc_server.http2.frames import DEFAULT_WINDOW
from twophase.grpc_server.http2.response import Response


class Responses(Protocol):
    """The sending side of a connection; see `outbox.Outbox`."""

    def answer(self, stream: Stream, reply: Response) -> None: ...

    def headers(self, stream: Stream, block: bytes, *, ends: bool = False) -> None: ...

    async def message(self, stream: Stream, data: bytes) -> None: ...

    def forget(self, stream: Stream) -> None: ...


class Peer(Protocol):
    """The connection of a stream; see `connection.Connection`."""

    now_s: float

    @property
    def outbox(self) -> Responses: ...

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The peer's verified certificate; None without one.

        It is what `ssl.SSLSocket.getpeercert` returns.
        """
        ...

    @property
    def address(self) -> str:
        """The peer's address without its port; empty for a peer that has none."""
        ...

    def widen(self, stream: Stream, by: int) -> None: ...

    def admit(self, stream: Stream, by: int) -> None: ...

    def admitted(self, stream: Stream) -> None: ...

    def keep(self, stream: Stream, size: int) -> bool: ...

    def unfolded(self, size: int) -> None: ...

    def odd(self, count: int = 1) -> None: ...


class Head(Protocol):
    """The meaning of a request's headers to its handler.

    One object serves all requests with the same headers.
    """

    @property
    def begin(self) -> Callable[[Peer, int, Any], Stream]:
        """The function that makes the handler of a request.

        It is called with the connection, the stream's number and this object.
        """
        ...

    @property
    def eager(self) -> bool:
        """True when the handler starts with the headers (`Stream.started`).

        Otherwise it starts with the first data.
        """
        ...


class Stream(abc.ABC):
    """A request under way, and its handler.

    Arguments:
        connection: the peer's connection.
        number: the stream's number.
        content_bytes: the request's announced length; -1 for none.
    """

    __slots__ = ("asks", "connection", "debt", "ended", "granted", "kept", "number", "owed", "since_s", "window")

    def __init__(self, connection: Peer, number: int, content_bytes: int) -> None:
        self.connection = connection
        self.number = number
        self.window = DEFAULT_WINDOW
        """Bytes the peer may still send."""
        self.granted = 0
        """Bytes it was allowed beyond the usual window, for one long message."""
        self.asks = False
        """True while it waits for such an allowance."""
        self.debt = 0
        """Bytes sent and not yet taken by the peer: its window is the usual one less this."""
        self.kept = 0
        """Bytes of it that wait for the rest, as far as they count against the budget."""
        self.ended = False
        """True when the request is whole."""
        self.owed = content_bytes
        self.since_s = connection.now_s

    def started(self) -> None:  # noqa: B027 -- most streams have nothing to do then
        """Handle the headers of an eager request."""

    @abc.abstractmethod
    def received(self, data: bytes, *, ended: bool) -> None:
        """Handle a piece of the request, the last one if `ended`; raises StreamFault."""

    @abc.abstractmethod
    def late(self) -> None:
        """Handle a request that did not become whole in time."""

    @abc.abstractmethod
    def cut(self) -> None:
        """Stop: the peer wants no answer any more, or is gone."""
