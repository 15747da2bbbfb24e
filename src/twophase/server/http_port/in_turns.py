"""A connection whose long reads are taken in turns.

Promise: a client that sends many requests at once, on one connection or on many of one address, takes one turn of the
event loop after the other, between which all others are served. What waits for a turn is one read, and it waits while
the connection has too many requests without a response.
"""

from __future__ import annotations

import asyncio
from abc import ABC
from typing import TYPE_CHECKING, Final, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twophase.http_client.turns import Turns

if TYPE_CHECKING:
    from twophase.server.http_port.port import Port

TURN_BYTES: Final = 16 * 1024
"""Bytes of a read that end the turn, unless it is one request with a known head."""
TURN_REQUESTS: Final = 16
"""Requests of a read that end it, too."""
# The part of a request that is being read.
NOTHING: Final = 0
HEAD: Final = 1


class Flow(FlowControl):
    """The pauses of a connection, which only the connection ends.

    An app that asks for the body of a request would end them, too. The body is whole by then. The connection would be
    read from in spite of too many requests, and the rest of a read would never get its turn.
    """

    def resume_reading(self) -> None:
        """Do nothing; see the class."""

    def read_on(self) -> None:
        """Read again."""
        super().resume_reading()


class InTurns(HttpToolsProtocol, ABC):
    """The turns of a connection; `RequestParser` reads in them."""

    port: Port
    loop: asyncio.AbstractEventLoop
    reading: int
    since_s: float
    ended: bool

    def __init__(self, port: Port, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config=port.config, server_state=port.state, app_state={}, _loop=loop)
        self._turns = Turns()  # those of the peer's address when it is known
        self._waits = False
        """True while it waits for its turn."""
        self._later = b""
        """The rest of a read, for the next turn."""
        self._holds = False
        """True while `reading` is HEAD only because of that rest."""

    def _end_turn(self) -> None:
        """Read nothing until the next turn."""
        self.transport.pause_reading()
        if not self._waits:
            self._waits = True
            self._turns.add(self._begin_turn)

    def _begin_turn(self) -> None:
        """Continue the read, then read again: the other connections had their turn.

        With too many requests without a response, `read_on` begins another turn later.
        """
        self._waits = False
        if self.flow.read_paused or self.transport.is_closing():
            return
        later, self._later = self._later, b""
        if self._holds:
            self._holds = False
            self.reading = NOTHING
        if later:
            self.data_received(later)
        if not (self._waits or self.flow.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def read_on(self) -> None:
        """Read again: few requests are without a response."""
        cast("Flow", self.flow).read_on()
        if self._later:
            self._end_turn()

    def _hold(self, rest: bytes) -> None:
        """Keep the rest of a read for the next turn.

        What arrives meanwhile goes behind it.
        """
        self._later = rest
        if self.reading == NOTHING and not self.ended:
            self._holds = True
            self.reading = HEAD
            self.since_s = self.port.now_s
