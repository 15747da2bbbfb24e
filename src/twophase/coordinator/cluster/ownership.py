"""Which due messages are still this node's, asked before their producers or branches are.

On a store that several nodes share, a submit may reach another node, which then owns the message, while this one
still holds it in memory with a timer. Asking every such producer would double the load of a busy system, so due
messages are first compared with the store, many in one question; those that moved are forgotten without a call.
The same holds for retries: an operator may have stopped or parked the message on another node, and once he has been
told so, its branches are called no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twophase.coordinator.background import end
from twophase.coordinator.observer import Observer
from twophase.coordinator.state.active_message import Entry
from twophase.coordinator.state.active_set import Active
from twophase.coordinator.state.timers import Timers
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import StoreFenced
from twophase.core.hooks import Clock
from twophase.core.lifecycle import State
from twophase.stores.base import Store

_TOGETHER_MAX: Final = 2_000
_LATER_MS: Final = 1_000


class Moved:
    """Sifts due messages.

    Arguments:
        on_ours: called with each that is ours, in the state that memory knows.
        on_done: called with each that turned out to be something else meanwhile, and may be needed no more.
        on_fenced: called when the store says that this node has lost its place.
    """

    def __init__(
        self,
        store: Store,
        active: Active,
        timers: Timers,
        clock: Clock,
        observer: Observer,
        *,
        on_ours: Callable[[Entry], None],
        on_done: Callable[[Entry], None],
        on_fenced: Callable[[StoreFenced], None],
    ) -> None:
        self._store = store
        self._active = active
        self._timers = timers
        self._clock = clock
        self._observer = observer
        self._on_ours = on_ours
        self._on_done = on_done
        self._on_fenced = on_fenced
        self._waiting: list[tuple[Entry, int]] = []
        self._task: asyncio.Task[None] | None = None

    def sift(self, entry: Entry) -> None:
        """Find out about a due message, together with all that come until the store can be asked."""
        assert entry.state in (State.PREPARED, State.SUBMITTED), "only what is not final is due"
        entry.calls += 1  # an answer is awaited: it stays in memory
        self._waiting.append((entry, entry.version))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="twophase moved")

    async def stop(self) -> None:
        """Ask nothing more. Safe to call twice."""
        task, self._task = self._task, None
        await end(task)
        for entry, _ in self._waiting:
            entry.calls -= 1
        self._waiting.clear()

    async def _run(self) -> None:
        while self._waiting:
            asked = self._waiting[:_TOGETHER_MAX]
            try:
                moved = await self._store.moved([(entry.message.gid, version) for entry, version in asked])
            except Exception as cause:  # noqa: BLE001 -- whatever it is, they are asked about later: I9 hangs on it
                self._failed(cause, asked)
                continue
            del self._waiting[: len(asked)]
            left = 0
            for entry, version in asked:
                try:
                    left += self._tell(entry, version, entry.message.gid in moved)
                except Exception as cause:  # noqa: BLE001 -- one message's fault never stops its neighbours
                    self._observer.flush_failed(as_store_error(cause).code, log_text(cause))
                    self._later(entry)
            if left:
                self._observer.moved(left)

    def _failed(self, cause: Exception, asked: list[tuple[Entry, int]]) -> None:
        error = as_store_error(cause)
        del self._waiting[: len(asked)]
        self._observer.flush_failed(error.code)
        for entry, _ in asked:
            entry.calls -= 1
            self._later(entry)
        if isinstance(error, StoreFenced):
            self._on_fenced(error)

    def _tell(self, entry: Entry, version: int, moved: bool) -> bool:  # noqa: FBT001 -- what the store said
        """Go on with one; True when it has left memory."""
        entry.calls -= 1
        if entry.detached:
            return False
        if entry.busy or entry.version != version or not _in_doubt(entry) or entry.waiters:
            # A change from here came in between. Its outcome tells all there is to know, but need not set a timer.
            self._later(entry)
        elif not moved:
            self._on_ours(entry)
        elif entry.calls == 0:
            entry.mine = False
            self._active.remove(entry)
            return True
        return False

    def _later(self, entry: Entry) -> None:
        """Ask about it later, if it is still to be asked about; what is not may have stayed for this answer alone."""
        if entry.detached:
            return
        if _in_doubt(entry):
            if not entry.parked and entry.bucket < 0:
                self._timers.schedule(entry, self._clock.now_ms() + _LATER_MS)
        else:
            self._on_done(entry)


def _in_doubt(entry: Entry) -> bool:
    return entry.mine and entry.round is None and entry.state in (State.PREPARED, State.SUBMITTED)
