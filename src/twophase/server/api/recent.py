"""Answers of the store that are asked for once a second at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
FRESH_S: Final = 1.0


class Recent(Generic[T]):
    """An answer, or a failure, of the last second; its askers share a question.

    Arguments:
        ask: asks the question.
        now_s: returns the time.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]], now_s: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._now_s = now_s
        self._asked_s = 0.0
        self._asking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the answer; raises as the question does."""
        now_s = self._now_s()
        if self._asking is None or (self._asking.done() and now_s - self._asked_s > FRESH_S):
            self._asked_s = now_s
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)
