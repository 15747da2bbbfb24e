"""Counting: reads from the store how many messages of each owner wait.

It reads only while some quota needs the counts. The pause is many times the time that a reading takes, so that a large
store is not read all the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from twophase.coordinator.background import Background
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.store_faults import as_store_error, log_text

_PAUSE_S: Final = 2.0
_PAUSES_A_READING: Final = 20
_log = logging.getLogger("twophase.coordinator")


class Counting:
    """Reads the counts in the background."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._owners = runtime.owners
        self._background = Background("twophase counting")

    async def start(self) -> None:
        """Read once, if the counts are wanted, and go on."""
        await self.read()
        self._background.start(self._loop())

    async def stop(self) -> None:
        """Stop reading. A second call is safe."""
        await self._background.stop()

    async def read(self) -> float:
        """Read the counts, if they are wanted; return the seconds that it took."""
        if not self._owners.wanted:
            return 0.0
        began_s = time.monotonic()
        try:
            self._owners.replace(await self._store.waiting_by_owner())
        except Exception as error:  # noqa: BLE001 -- the last counts stay in force after any error
            _log.warning("what waits of each owner cannot be counted: %s", log_text(as_store_error(error)))
        return time.monotonic() - began_s

    async def _loop(self) -> None:
        took_s = 0.0
        while True:
            await asyncio.sleep(max(_PAUSE_S, _PAUSES_A_READING * took_s))
            took_s = await self.read()
