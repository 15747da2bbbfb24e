"""A response of the ASGI application, in the queue of its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class PendingAsgiResponse:
    """The response of the ASGI application.

    It starts when every earlier response is written.
    """

    __slots__ = ("app", "cycle", "kept", "started")

    def __init__(self, cycle: RequestResponseCycle, app: ASGI3Application, kept: int) -> None:
        self.cycle = cycle
        self.app = app
        self.kept = kept
        """Its bytes in the connection's account."""
        self.started = False

    def sends_no_more(self) -> None:
        """Wake a handler that waits for its client's end.

        The request is whole, so the handler waits for nothing else.
        """
        if self.started and not self.cycle.more_body:
            self.cycle.message_event.set()
