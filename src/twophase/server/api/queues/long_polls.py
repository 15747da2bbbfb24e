"""Long polls over HTTP: requests that wait, and end when their client goes.

Promise: what a poll took for a client that has gone is not lost with it; the caller gives it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request

from twophase.coordinator.background import end
from twophase.core.errors import Overloaded
from twophase.server.sessions import Session

T = TypeVar("T")

POLLS_MAX: Final = 32
"""Long polls of one client that may wait."""


class Polled(NamedTuple):
    """The end of a long poll: its result, if any, and if the client is there."""

    result: Any
    is_there: bool


async def polled(request: Request, session: Session, waiting: Coroutine[Any, Any, T]) -> Polled:
    """Wait for a result, until the client ends the poll or its connection.

    Raises:
        Overloaded: too many of its polls wait. What `waiting` raises.
    """
    if session.polls >= POLLS_MAX:
        waiting.close()
        raise Overloaded(f"{session.polls} long polls of this client wait already.")
    task = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_gone(request))
    gone.add_done_callback(lambda _: task.cancel())
    try:
        result = await session.poll(task)
        return Polled(result, is_there=not gone.done())
    except asyncio.CancelledError:  # the server stops
        if task.done() and not task.cancelled() and task.exception() is None:
            return Polled(task.result(), is_there=False)
        raise
    finally:
        await end(gone)


async def _gone(request: Request) -> None:
    """Wait until the client closes its connection, or its half of it.

    Its request has arrived, so it means to go.
    """
    await request.body()
    await request.receive()
