"""Waits for what gives no signal.

A condition is looked at again and again, with a limit that a busy machine keeps.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
_LOOK_S = 0.001


async def until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return the first true value of a condition, which may be awaitable."""
    async with asyncio.timeout(patience_s):
        while True:
            found = condition()
            value = await found if inspect.isawaitable(found) else found
            if value:
                return value
            await asyncio.sleep(_LOOK_S)


def blocked_until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return the first true value of a condition, and hold up this thread meanwhile."""
    deadline_s = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "it did not come about in time"
        time.sleep(_LOOK_S)
    return found
