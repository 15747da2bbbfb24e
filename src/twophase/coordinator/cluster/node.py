"""A node that loses its slot, gets another, or must stop.

`membership` calls it, and it acts on the coordinator's parts. Keeps I2 and I9 with a rule of its own: a change planned
in one epoch is written in that epoch, or never. A change written under the next one would make the row this node's,
which has forgotten it, while the node that adopted it loses its compare-and-set and forgets it, too: no node would
drive it. So between the last look at what waits for the store and the forgetting of the last active message nothing
else runs (`forget_all`), and `GroupCommit.resume` finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twophase.coordinator.admission import Admission
from twophase.coordinator.cluster.ownership import Ownership
from twophase.coordinator.dispatch.dispatcher import Dispatcher
from twophase.coordinator.maintenance.recovery import Recovery
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.machine import StateMachine
from twophase.core.errors import StoreError, StoreFenced


class Node:
    """The work of a node; implements `membership.Work`.

    Arguments:
        on_tick: looks at the clock.
    """

    def __init__(
        self,
        memory: ActiveSet,
        machine: StateMachine,
        admission: Admission,
        dispatcher: Dispatcher,
        ownership: Ownership,
        recovery: Recovery,
        on_tick: Callable[[], None],
    ) -> None:
        self._memory = memory
        self._machine = machine
        self._admission = admission
        self._dispatcher = dispatcher
        self._ownership = ownership
        self._recovery = recovery
        self._fatal: asyncio.Future[StoreError] | None = None
        self.tick = on_tick

    def begin(self) -> None:
        """Begin: the coordinator starts."""
        self._fatal = asyncio.get_running_loop().create_future()

    async def fatal(self) -> StoreError:
        """Wait for the error after which this node must stop."""
        assert self._fatal is not None, "start comes first"
        return await asyncio.shield(self._fatal)

    def halt(self) -> None:
        """Stop at once: accept nothing, begin nothing, write nothing."""
        self._admission.close()
        self._dispatcher.drain()
        self._machine.group_commit.halt()

    async def let_go(self, error: StoreFenced) -> None:
        """Let every message go: acknowledged ones are safe in the store, for another node."""
        await self._ownership.stop()
        await self._recovery.stop()
        await self.forget_all(error)

    def take_up(self) -> None:
        """Accept again.

        This node's former rows return by adoption, unless another node was faster.
        """
        if self._admission.draining:
            return
        self._dispatcher.resume()
        self._machine.group_commit.resume()
        self._admission.open()
        self._recovery.restart()

    def adopted(self) -> None:
        """Read what is due from the beginning."""
        self._recovery.adopted()

    def fail(self, error: StoreError) -> None:
        """Note that this node cannot continue."""
        self._admission.close()
        self._memory.due_times.stop()
        self._dispatcher.drain()
        if self._fatal is not None and not self._fatal.done():
            self._fatal.set_result(error)

    async def forget_all(self, error: StoreError) -> None:
        """Give up what waits for the store and everything in memory.

        Every requester of these is answered. The node is halted already.
        """
        await self._admission.cancel()
        await self._machine.group_commit.discard(error)
        # No await from here on: an answer that arrived in between would plan a change of a message that is evicted.
        for active in self._memory.messages():
            self._machine.fail_and_evict(active, None, type(error)(error.message, gid=active.message.gid))
