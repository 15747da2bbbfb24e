"""Reads of single gids, grouped.

Those that come while one is under way go together in the next. No read waits for a timer: a read alone starts at once.
A read begins after everything it answers was asked, so an answer is never older than its question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")
TOGETHER_MAX: Final = 1_000


class GroupedReads(Generic[Row]):
    """Groups the reads of one event loop.

    Arguments:
        read: returns the rows of gids; what is not there is left out.
    """

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[Mapping[str, Row]]]) -> None:
        self._read = read
        self._waiting: list[tuple[str, asyncio.Future[Row | None]]] = []
        self._reading: asyncio.Task[None] | None = None

    async def get(self, gid: str) -> Row | None:
        """Return the row of a gid; None without one. Raises what `read` raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Row | None] = loop.create_future()
        self._waiting.append((gid, answer))
        if self._reading is None:
            self._reading = loop.create_task(self._read_all())
        return await answer

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
                try:
                    rows = await self._read([gid for gid, _ in asked])
                except Exception as error:  # noqa: BLE001 -- it belongs to those who asked
                    for _, answer in asked:
                        if not answer.done():
                            answer.set_exception(error)
                else:
                    for gid, answer in asked:
                        if not answer.done():
                            answer.set_result(rows.get(gid))
        finally:
            self._reading = None
