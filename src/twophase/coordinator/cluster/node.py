"""A node that loses its place, gets another, or must stop: what `membership` asks of the coordinator's parts.

Keeps I2 and I9 with a rule of its own: whatever was planned in one tenure is written in that tenure, or never. A change
written under the next one would make the row this node's, which has forgotten it, while the node that took it over
loses its compare-and-set and forgets it, too: nobody would see to it. So between the last look at what waits for the
store and the forgetting of the last entry nothing else runs (`forget_all`), and `Committer.resume` finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twophase.coordinator.cluster.ownership import Moved
from twophase.coordinator.engine import Engine
from twophase.coordinator.maintenance.recovery import Recovery
from twophase.core.errors import StoreError, StoreFenced


class Node:
    """See `membership.Work`.

    Arguments:
        on_tick: looks at the clock.
    """

    def __init__(self, engine: Engine, moved: Moved, recovery: Recovery, on_tick: Callable[[], None]) -> None:
        self._engine = engine
        self._admission = engine.admission
        self._decisions = engine.decisions
        self._moved = moved
        self._recovery = recovery
        self._fatal: asyncio.Future[StoreError] | None = None
        self.tick = on_tick

    def begin(self) -> None:
        """The coordinator starts."""
        self._fatal = asyncio.get_running_loop().create_future()

    async def fatal(self) -> StoreError:
        """Wait for the error after which this node must stop."""
        assert self._fatal is not None, "start comes first"
        return await asyncio.shield(self._fatal)

    def halt(self) -> None:
        """At once: accept nothing, begin nothing, write nothing."""
        self._admission.close()
        self._engine.drain()
        self._decisions.committer.halt()

    async def let_go(self, error: StoreFenced) -> None:
        """What was acknowledged is safe in the store, and another node's now; what waits learns that it is unknown."""
        await self._moved.stop()
        await self._recovery.stop()
        await self.forget_all(error)

    def take_up(self) -> None:
        """The rows that were ours come back by adoption, if nobody was faster."""
        if self._admission.draining:
            return
        self._engine.resume()
        self._decisions.committer.resume()
        self._admission.open()
        self._recovery.restart()

    def adopted(self) -> None:
        """Read what is due from the beginning."""
        self._recovery.adopted()

    def fail(self, error: StoreError) -> None:
        """This node cannot go on."""
        self._admission.close()
        self._engine.timers.stop()
        self._engine.drain()
        if self._fatal is not None and not self._fatal.done():
            self._fatal.set_result(error)

    async def forget_all(self, error: StoreError) -> None:
        """Halted: give up what waits for the store and everything in memory, and tell whoever waits for any of it."""
        await self._admission.cancel()
        await self._decisions.committer.discard(error)
        # No await from here on: an answer that came in between would plan a change of an entry that is forgotten.
        for entry in self._engine.active.entries():
            self._decisions.give_up(entry, None, type(error)(error.message, gid=entry.message.gid))
