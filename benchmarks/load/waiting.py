"""Waiting for a condition, within a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_POLL_S: Final = 0.02


async def until(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait until a condition is true; return False when it was not in time."""
    ends_s = time.perf_counter() + within_s
    while not condition():
        if time.perf_counter() > ends_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True
