"""A store that keeps nothing, so that a benchmark measures what is around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twophase.core.hooks import WallClock
from twophase.stores.base import Overview, Purged
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.queue_rows import Definition
from twophase.stores.rows import Topics


class NoStore:
    """Keeps nothing, and answers each flush at once."""

    shared = False
    lease_ms = 0
    slot = (1, 1)

    def __init__(self) -> None:
        self._clock = WallClock()

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def flush(self, batch: Batch) -> FlushResult:
        """Take note of nothing."""
        assert batch.items, "messages change"
        return FlushResult(self._clock.now_ms(), {})

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def queue_definitions(self) -> Sequence[Definition]:
        return ()

    async def topics(self, known: int = -1) -> Topics | None:
        return Topics(0, {}) if known != 0 else None

    async def history_horizon_ms(self) -> int:
        return 0

    async def later(self, *_: object) -> list[Any]:
        return []

    async def due(self, *_: object) -> list[Any]:
        return []

    async def oldest_undecided(self, *_: object) -> list[Any]:
        return []

    async def waiting_by_owner(self) -> dict[str, tuple[int, int]]:
        return {}

    async def overview(self, *_: object) -> Overview:
        return Overview(0, 0, 0, None, None)

    async def purge(self, *_: object) -> Purged:
        return Purged(0, 0, more=False, horizon_ms=0)
