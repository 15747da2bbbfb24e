"""One request, and its answer, on a connection: what the connection keeps of it, and what it tells it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from twophase.http2.frames import DEFAULT_WINDOW

if TYPE_CHECKING:
    from twophase.http2.connection import Connection


class Head(Protocol):
    """What the headers of a request mean to whoever answers it; one object for all requests with the same headers."""

    @property
    def begin(self) -> Callable[[Connection, int, Any], Stream]:
        """Called with the connection, the stream's number and this object: the request that begins."""
        ...

    @property
    def eager(self) -> bool:
        """Whether it begins with its headers (`Stream.started`), not only when something has been received."""
        ...


class Stream(abc.ABC):
    """A request under way.

    Arguments:
        connection: the peer.
        number: of the stream.
        content_bytes: how long the request is to be; -1: not said.
    """

    __slots__ = ("asks", "connection", "debt", "ended", "granted", "number", "owed", "since_s", "window")

    def __init__(self, connection: Connection, number: int, content_bytes: int) -> None:
        self.connection = connection
        self.number = number
        self.window = DEFAULT_WINDOW
        """What the peer may still send."""
        self.granted = 0
        """What it was allowed beyond the usual, for one long message."""
        self.asks = False
        """Whether it waits for that."""
        self.debt = 0
        """What was sent to it, less what it has taken: its window is the usual one less this."""
        self.ended = False
        """Whether the request is whole."""
        self.owed = content_bytes
        self.since_s = connection.now_s

    def started(self) -> None:  # noqa: B027 -- most streams have nothing to do then
        """The headers of an eager request are there."""

    @abc.abstractmethod
    def received(self, data: bytes, *, ended: bool) -> None:
        """A piece of the request, the last one if `ended`; raises StreamFault."""

    @abc.abstractmethod
    def late(self) -> None:
        """The request is not whole after all the time that it is given."""

    @abc.abstractmethod
    def cut(self) -> None:
        """The peer wants no answer any more, or is gone."""
