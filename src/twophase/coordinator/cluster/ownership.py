"""Ownership of due messages, compared with the store before any call.

On a store that several nodes share, a submit may reach another node, which then owns the message, while this one still
holds it in memory with a timer. Asking every such producer would double the load of a busy system, so due messages are
first compared with the store, many in one question; those that moved are forgotten without a call. The same holds for
retries: an operator may have stopped or parked the message on another node, and after that reply no round of it begins.

Invariant: the store is asked about a message only in the version that memory holds when it is asked. The store's
answer names gids, not versions. A message may wait twice, in an older version too, and the answer about the older one
would make this node forget a message of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twophase.coordinator.background import end
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.machine import StateMachine
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import StoreFenced
from twophase.core.lifecycle import State

_TOGETHER_MAX: Final = 2_000
_LATER_MS: Final = 1_000


class Ownership:
    """Dispatches due messages that this node still owns, and evicts the others.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory.
        machine: evicts messages that are no longer needed, and reports that the node has lost its slot.
        dispatch: called with each message that this node owns, in the state that memory knows.
    """

    def __init__(
        self, runtime: Runtime, memory: ActiveSet, machine: StateMachine, dispatch: Callable[[ActiveMessage], None]
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._memory = memory
        self._machine = machine
        self._dispatch = dispatch
        self._waiting: list[tuple[ActiveMessage, int]] = []
        self._task: asyncio.Task[None] | None = None

    def check(self, active: ActiveMessage) -> None:
        """Check the owner of a due message, with all that follow until the store is asked."""
        assert active.state in (State.PREPARED, State.SUBMITTED), "only what is not final is due"
        active.calls += 1  # an answer is awaited: it stays in memory
        self._waiting.append((active, active.version))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="twophase ownership")

    async def stop(self) -> None:
        """Ask nothing more. Safe to call twice."""
        task, self._task = self._task, None
        await end(task)
        for active, _ in self._waiting:
            active.calls -= 1
        self._waiting.clear()

    async def _run(self) -> None:
        while self._waiting:
            asked = self._waiting[:_TOGETHER_MAX]
            current = [(active.message.gid, version) for active, version in asked if active.version == version]
            try:
                moved = await self._store.moved(current) if current else frozenset()
            except Exception as cause:  # noqa: BLE001 -- whatever it is, they are asked about later: I9 hangs on it
                self._failed(cause, asked)
                continue
            del self._waiting[: len(asked)]
            left = 0
            for active, version in asked:
                try:
                    left += self._tell(active, version, active.message.gid in moved)
                except Exception as cause:  # noqa: BLE001 -- one message's fault never stops its neighbours
                    self._observer.flush_failed(as_store_error(cause).code, log_text(cause))
                    self._later(active)
            if left:
                self._observer.moved(left)

    def _failed(self, cause: Exception, asked: list[tuple[ActiveMessage, int]]) -> None:
        error = as_store_error(cause)
        del self._waiting[: len(asked)]
        self._observer.flush_failed(error.code, log_text(error))
        for active, _ in asked:
            active.calls -= 1
            self._later(active)
        if isinstance(error, StoreFenced):
            self._machine.fenced(error)

    def _tell(self, active: ActiveMessage, version: int, moved: bool) -> bool:  # noqa: FBT001 -- the store's answer
        """Handle the store's answer for a message; True when it has left memory."""
        active.calls -= 1
        if active.detached:
            return False
        if active.busy or active.version != version or not _in_doubt(active) or active.waiters:
            # A change of this node was made in between. Its outcome is all that is needed, but it need not set a timer.
            self._later(active)
        elif not moved:
            self._dispatch(active)
        else:
            active.owned = False  # with calls under way it leaves after the last answer
            self._machine.evict_if_idle(active)
            return active.detached
        return False

    def _later(self, active: ActiveMessage) -> None:
        """Ask about a message later, if its owner still matters.

        Otherwise it may have stayed in memory for this answer alone.
        """
        if active.detached:
            return
        if _in_doubt(active) and not active.parked:
            if active.slot is None:
                self._memory.schedule(active, self._clock.now_ms() + _LATER_MS)
        else:
            self._machine.evict_if_idle(active)


def _in_doubt(active: ActiveMessage) -> bool:
    return active.owned and active.round is None and active.state in (State.PREPARED, State.SUBMITTED)
