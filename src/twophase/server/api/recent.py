"""Answers of the store that are read once a second, however many ask.

A request that comes while a reading is under way, or within a second after its begin, gets that reading's answer. A
failure is an answer, too: a store that fails is not asked more often than one that works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from twophase.core.errors import Overloaded

FRESH_S: Final = 1.0
_AT_ONCE_MAX: Final = 4
"""Bound on readings under way for different questions."""
_KEPT_MAX: Final = 16

T = TypeVar("T")


class Recent(Generic[T]):
    """The last answers to one kind of question.

    Arguments:
        read: asks the store; called with what was asked.
    """

    def __init__(self, read: Callable[..., Awaitable[T]]) -> None:
        self._read = read
        self._readings: dict[tuple[str, ...], tuple[float, asyncio.Future[T]]] = {}

    async def of(self, *asked: str) -> T:
        """Return the answer, at most a second old when its reading took no longer.

        Raises:
            Overloaded: too many different questions are under way. Otherwise as `read`.
        """
        now_s = time.monotonic()
        begun_s, reading = self._readings.get(asked, (0.0, None))
        if reading is None or (reading.done() and now_s - begun_s > FRESH_S):
            self._make_room()
            reading = asyncio.ensure_future(self._read(*asked))
            reading.add_done_callback(_note_end)
            self._readings[asked] = now_s, reading
        return await asyncio.shield(reading)

    def _make_room(self) -> None:
        ended = [asked for asked, (_, reading) in self._readings.items() if reading.done()]
        if len(self._readings) - len(ended) >= _AT_ONCE_MAX:
            raise Overloaded("too many such questions are under way.")
        if len(self._readings) >= _KEPT_MAX:
            del self._readings[ended[0]]


def _note_end(reading: asyncio.Future[T]) -> None:
    """Take note of a failure for which no request waits any more."""
    if not reading.cancelled():
        reading.exception()
