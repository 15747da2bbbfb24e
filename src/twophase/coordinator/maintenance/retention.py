"""Retention: removes old history and attempts in small steps, beside the hot path.

Keeps I10 with the store, which raises the history horizon in the commit that deletes: a gid's duplicates are detected
as long as its history is kept, and refused as "cannot tell" after that (correctness rule 15). Age is counted by the
store's clock, because a node's own may be an hour off and would remove an hour too early. Under a store's clock that is
ahead history is removed too early, and nothing else outlives that clock: the horizon stands behind the removed rows
(`stores.forgetting`), and no cleaning waits longer than the interval, whatever the clock showed at the last one.

A step removes few rows and is followed by a pause several times its own length, so that flushes find the store free.
Several nodes on one store may do it at once: the horizon only rises, and a row is removed once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from twophase.coordinator.background import Background, rest
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import StoreError, StoreFenced
from twophase.stores.base import Purged

_SHARE_WHEN_BEHIND = 0.5
_STEPS_WHEN_BEHIND = 5
"""Fraction of time and size of a step for a run that has lasted too long.

On a store that is always busy a step mostly waits its turn, and rows that age faster than they are removed would grow
for ever.
"""
_FEWER = 4
_DIVISOR_MAX = 4_096


class Bounds(Protocol):
    """The bounds of what topics of queues keep, in one cleaning."""

    async def begin(self, now_ms: int) -> None:
        """Look at the topics before their entries are removed.

        `now_ms`: the store's clock.
        """
        ...

    def before_ms(self, now_ms: int) -> Mapping[str, int]:
        """Return the time before which entries go, of each topic that has one of its own."""
        ...

    async def end(self, now_ms: int) -> None:
        """Look at what the topics have now."""
        ...


class Retention:
    """Runs every `retention_interval_ms`, in the background.

    It does nothing when `retention_ms` is 0.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        bounds: of the topics of queues.
    """

    def __init__(self, runtime: Runtime, bounds: Bounds | None = None) -> None:
        self._bounds = bounds
        self._store = runtime.store
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._random = runtime.random
        self._observer = runtime.observer
        self._next_ms = 0
        self._divisor = 1
        """Divides a step's rows: large bodies may take longer than the statement timeout."""
        self._woken = asyncio.Event()
        self._background = Background("twophase retention")

    async def start(self) -> None:
        """Begin to watch the clock."""
        if self._settings.retention_ms:
            # Nodes that start together should not clean together; it would do no harm, and no good.
            self._next_ms = self._clock.now_ms() + int(self._random() * self._settings.retention_interval_ms)
            self._background.start(self._loop())

    async def stop(self) -> None:
        """Remove nothing more; a step under way is whole or has not happened.

        A second call is safe.
        """
        await self._background.stop()

    def wake(self) -> None:
        """Look at the clock now: it has jumped."""
        self._woken.set()

    async def _loop(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            self._next_ms = min(self._next_ms, now_ms + self._settings.retention_interval_ms)
            await rest(max(0, self._next_ms - now_ms) / 1000, self._woken)
            self._woken.clear()
            if self._clock.now_ms() < self._next_ms:
                continue
            self._next_ms = self._clock.now_ms() + self._settings.retention_interval_ms
            try:
                await self._run()
            except StoreFenced:
                continue  # this node has no slot; until it has one there is nothing to clean
            except Exception as error:  # noqa: BLE001 -- whatever it is, the next run tries again
                self._observer.cleaning_failed(as_store_error(error).code, log_text(error))

    async def _run(self) -> None:
        """Remove what is older than the retention now.

        Rows that reach that age meanwhile are the next run's.
        """
        settings = self._settings
        now_ms = await self._store.now_ms()
        before_ms = now_ms - settings.retention_ms
        if before_ms <= 0:
            return
        began_s = time.monotonic()
        history = attempts = 0
        if self._bounds is not None:
            await self._bounds.begin(now_ms)
        more = True
        while more:
            step_s = time.monotonic()
            own_ms = {} if self._bounds is None else self._bounds.before_ms(now_ms)
            more = bool(await self._store.purge_queues(before_ms, settings.purge_rows, own_ms))
            await asyncio.sleep((time.monotonic() - step_s) * (1 / settings.purge_share - 1))
        more = True
        while more:
            step_s = time.monotonic()
            behind = (step_s - began_s) * 1000 > settings.retention_interval_ms
            step = await self._purge(before_ms, settings.purge_rows * (_STEPS_WHEN_BEHIND if behind else 1))
            took_s = time.monotonic() - step_s
            self._observer.purged(step)
            history += step.history
            attempts += step.attempts
            more = step.more
            if more:
                share = _SHARE_WHEN_BEHIND if behind else settings.purge_share
                await asyncio.sleep(took_s / share - took_s)
        self._observer.cleaned(history, attempts, time.monotonic() - began_s)
        if self._bounds is not None:
            await self._bounds.end(now_ms)

    async def _purge(self, before_ms: int, rows: int) -> Purged:
        """Remove one step's rows.

        After a failed step fewer are tried, and then more again.
        """
        try:
            step = await self._store.purge(before_ms, max(1, rows // self._divisor))
        except StoreError:
            self._divisor = min(self._divisor * _FEWER, _DIVISOR_MAX)
            raise
        self._divisor = max(1, self._divisor // 2)
        return step
