"""Work that no cancellation cuts off.

It ends a transaction or gives a connection back. A rollback that is cancelled leaves its connection with its caller,
and with the connection an open transaction: the row that this transaction holds makes every check-back answer "in
progress" for as long as the process lives.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

    from twophase.barrier.transaction import AsyncTransaction

T = TypeVar("T")
END_SECONDS_MAX = 5.0

log = logging.getLogger("twophase.barrier")


class Settled:
    """The end of a piece of work that a cancellation could not stop."""

    __slots__ = ("cancelled", "task")

    def __init__(self, task: asyncio.Task[Any], cancelled: asyncio.CancelledError | None) -> None:
        self.task = task
        self.cancelled = cancelled


async def settle(work: Coroutine[Any, Any, Any], seconds_max: float | None = None) -> Settled:
    """Run `work` to its end, or until `seconds_max`.

    A cancellation that arrives meanwhile does not end it.
    """
    import asyncio  # noqa: PLC0415 -- blocking producers import this module too

    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    timer = None if seconds_max is None else loop.call_later(seconds_max, task.cancel)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        # A future and a callback, as `asyncio.wait` has them, for a quarter of what that costs.
        ended = loop.create_future()
        wake = partial(_wake, ended)
        task.add_done_callback(wake)
        try:
            await ended
        except asyncio.CancelledError as error:
            task.remove_done_callback(wake)
            cancelled = error
    if timer is not None:
        timer.cancel()
    return Settled(task, cancelled)


def _wake(waiting: asyncio.Future[None], _: object) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, and return its result.

    Only then does a cancellation continue. It is for work that does not wait long, and that leaves something behind
    when it is cut off.
    """
    settled = await settle(work)
    if settled.cancelled is not None:
        if not settled.task.cancelled():
            settled.task.exception()  # so that asyncio does not report it as overlooked
        raise settled.cancelled
    result: T = settled.task.result()
    return result


async def give_back(transaction: AsyncTransaction) -> None:
    """Roll back an uncommitted transaction, and close.

    Only then does a cancellation continue.
    """
    await finish(_roll_back_and_close(transaction))


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end within `END_SECONDS_MAX`.

    Only then does a cancellation continue. It raises the errors that `work` raises.
    """
    settled = await settle(work, END_SECONDS_MAX)
    if settled.task.cancelled():
        log.warning("giving a connection back took longer than %s s and was abandoned", END_SECONDS_MAX)
    if settled.cancelled is not None:
        raise settled.cancelled
    if not settled.task.cancelled():
        settled.task.result()


async def _roll_back_and_close(transaction: AsyncTransaction) -> None:
    try:
        await transaction.rollback()
    finally:
        await transaction.close()
