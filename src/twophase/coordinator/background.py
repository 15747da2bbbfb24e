"""Start and end of work in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any


async def end(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it is over, whatever it ends with.

    None is over already.

    >>> async def forever() -> None:
    ...     await asyncio.Event().wait()
    >>> async def example() -> bool:
    ...     task = asyncio.create_task(forever())
    ...     await end(task)
    ...     return task.cancelled()
    >>> asyncio.run(example())
    True
    """
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


async def rest(seconds: float, woken: asyncio.Event) -> None:
    """Wait for a time, or until the event is set.

    >>> async def example() -> None:
    ...     told = asyncio.Event()
    ...     told.set()
    ...     await rest(3600, told)
    ...     await rest(0.001, asyncio.Event())
    >>> asyncio.run(example())
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()


class Background:
    """Work that continues until it is stopped, under a name that a debugger shows."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        """True from start to stop."""
        return self._task is not None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work; earlier work has been stopped."""
        assert self._task is None, "it does not run"
        self._task = asyncio.get_running_loop().create_task(work, name=self._name)

    async def stop(self) -> None:
        """Cancel the work and wait until it is over.

        A second call, and a call before `start`, are safe.
        """
        task, self._task = self._task, None
        await end(task)
