"""Requests of one connection that are not answered yet, in the order they came.

HTTP/1.1 allows a client to send the next request before the last answer (RFC 9112 §9.3.2), and answers must keep
that order, while ours are ready in any order: a hot one when its flush is, a cold one when its coroutine is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from twophase.core.errors import TwophaseError
from twophase.server.formats.encode import Answer, Route, failure

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from twophase.coordinator.messages.entry import ReplyOf
    from twophase.server.hot.protocol import Connection


class HotTurn(msgspec.Struct, eq=False):
    """A request answered by callbacks. `answer` is the whole response once it is known."""

    connection: Connection
    route: Route | None
    closes: bool
    answer: bytes | None = None

    def reply(self, reply: ReplyOf) -> None:
        """The coordinator's one reply."""
        if reply.error is None:
            self.connection.succeeded(self, reply.prepared_at_ms)
        else:
            answer = failure(reply.error, route=self.route, state=reply.state, result=reply.result)
            self.connection.answered(self, answer)

    def refuse(self, error: TwophaseError) -> None:
        """The request never reached the coordinator."""
        self.connection.answered(self, failure(error, route=self.route))

    def answered_with(self, answer: Answer) -> None:
        """Anything else, such as HTTP's own refusals."""
        self.connection.answered(self, answer)


class ColdTurn:
    """A request answered by the ASGI application; started when it comes to the head of the line."""

    __slots__ = ("app", "cycle", "started")

    def __init__(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.cycle = cycle
        self.app = app
        self.started = False
