"""Counting: reads the store's size, and what waits of each owner.

It reads only what some quota or `store_bytes_max` needs. The pause is many times the time that a reading takes, so
that a large store is not read all the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from twophase.coordinator.background import Background
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import StoreFull

_PAUSE_S: Final = 2.0
_PAUSES_A_READING: Final = 20
_log = logging.getLogger("twophase.coordinator")


class Counting:
    """Reads the counts in the background."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._owners = runtime.owners
        self._bytes_max = runtime.settings.store_bytes_max
        self._background = Background("twophase counting")

    async def start(self) -> None:
        """Read once, if the counts are wanted, and go on."""
        await self.read()
        self._background.start(self._loop())

    async def stop(self) -> None:
        """Stop reading. A second call is safe."""
        await self._background.stop()

    async def read(self) -> float:
        """Read what is wanted; return the seconds that it took."""
        began_s = time.monotonic()
        try:
            if self._owners.wanted:
                before = self._owners.copy()  # a large store is read for seconds
                self._owners.replace(await self._store.waiting_by_owner(), before)
            if self._bytes_max:
                self._owners.store_full = self._fullness(await self._store.size_bytes())
        except Exception as error:  # noqa: BLE001 -- the last counts stay in force after any error
            _log.warning("what waits of each owner cannot be counted: %s", log_text(as_store_error(error)))
        return time.monotonic() - began_s

    def _fullness(self, size: int) -> StoreFull | None:
        if size < self._bytes_max:
            return None
        if self._owners.store_full is None:
            _log.error("the store has reached store_bytes_max: new messages are refused: %d bytes", size)
        return StoreFull(
            f"the store has {size} bytes, and store_bytes_max is {self._bytes_max}: no new message is taken.",
            remedy="Raise store_bytes_max, or keep history for less time (retention_ms). Accepted messages continue.",
        )

    async def _loop(self) -> None:
        took_s = 0.0
        while True:
            await asyncio.sleep(max(_PAUSE_S, _PAUSES_A_READING * took_s))
            took_s = await self.read()
