"""The calls under way on a gRPC port: their number, deadlines and tasks.

The answer to a fault of the server is here, too. Calls know this and never the methods of a port (`services`), which
makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol

from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.status import Ended, Status, ended
from twophase.http_client.timeouts import Timeouts
from twophase.http_client.turns import BETWEEN_LONG, Turns

TOO_MANY: Final = "too many requests are under way."
ALL_TAKEN: Final = "all connections are taken; this one may only ask for the server's health."
_STREAMS_PERCENT: Final = 25


class Endless(Protocol):
    """A streaming call, which may last for ever."""

    def stop(self, end: Ended) -> None:
        """End the call from outside."""
        ...


class Calls:
    """The calls under way; see the module.

    Arguments:
        message_bytes_max: the longest message that is read.
        calls_max: the largest number of calls of one message under way at once.
        too_many: makes the answer beyond a bound, from its text.
        on_refused: called for each call that is refused by its headers.
        on_crash: called with each fault of the server.
        crash_end: the end of a call that met such a fault.
    """

    def __init__(
        self,
        *,
        message_bytes_max: int,
        calls_max: int,
        too_many: Callable[[str], Response],
        on_refused: Callable[[], None],
        on_crash: Callable[[Exception], None],
        crash_end: Ended,
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self.calls_max = calls_max
        self.streams_max = max(1, calls_max * _STREAMS_PERCENT // 100)
        """Bound on streaming calls, which are not among these: they may last for ever."""
        self.calls = 0
        """The number of calls of one message under way."""
        self.too_many = too_many
        self.turn_away: Callable[[], Response] = partial(too_many, ALL_TAKEN)
        """Makes the answer to a call on a reserved place that may not be used for it."""
        self.on_refused = on_refused
        self.timeouts = Timeouts(asyncio.get_running_loop())
        self.turns = Turns(BETWEEN_LONG)
        """The turns in which long messages are decoded."""
        self.deadline = ended(Status.DEADLINE_EXCEEDED, "the deadline has passed.")
        self.late = ended(Status.CANCELLED, "the request did not arrive in time.")
        self.streams: set[Endless] = set()
        """The streaming calls under way."""
        self._on_crash = on_crash
        self._crash_end = crash_end
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[None, None, None], at_the_end: Callable[[], None]) -> asyncio.Task[None]:
        """Run a coroutine, then call `at_the_end`.

        `at_the_end` is called also when the coroutine is cancelled before it begins.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            at_the_end()

        task.add_done_callback(done)
        return task

    def fault(self, error: Exception) -> Ended:
        """Report a fault of the server and return the end that a caller sees."""
        self._on_crash(error)
        return self._crash_end

    def crashed(self, error: Exception) -> Response:
        """Handle a fault as `fault` does, and return a whole answer."""
        end = self.fault(error)
        return ended(end.status, end.message, end.metadata)

    def end_streams(self, end: Ended) -> None:
        """End the streaming calls; the others end by themselves."""
        for call in list(self.streams):
            call.stop(end)

    async def stop(self) -> None:
        """End every call under way."""
        self.timeouts.stop()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
