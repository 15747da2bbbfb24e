"""Waits for what gives no signal.

A condition is looked at again and again, with a limit that a busy machine keeps. The pauses grow, so that a long wait
costs little.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
_FIRST_PAUSE_S, _PAUSE_S_MAX, _GROWTH = 0.001, 0.05, 1.5


async def until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return the first true value of a condition, which may be awaitable."""
    pause_s = _FIRST_PAUSE_S
    async with asyncio.timeout(patience_s):
        while True:
            found = condition()
            value = await found if inspect.isawaitable(found) else found
            if value:
                return value
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _GROWTH, _PAUSE_S_MAX)


def blocked_until(condition: Callable[[], Any], told: str = "it comes about in time") -> Any:
    """Return the first true value of a condition, and hold up this thread meanwhile.

    `told`: the text of the failure.
    """
    pause_s, deadline_s = _FIRST_PAUSE_S, time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, told
        time.sleep(pause_s)
        pause_s = min(pause_s * _GROWTH, _PAUSE_S_MAX)
    return found
