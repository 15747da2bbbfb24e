"""How work in the background ends."""

from __future__ import annotations

import asyncio
from typing import Any


async def end(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it is over, whatever it ends with; None is over already.

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
