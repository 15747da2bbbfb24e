"""Two coordinators on one store; each has producers and branches of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, QUICK, ScriptedDestination, StillClock, Watcher
from tests.unit.coordinator.shared_store import LEASE_MS, Shared
from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Reply
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.stores.batch import Reschedule
from twophase.testing.clock import VirtualClock


class Noted(Watcher):
    """An observer that counts what one node reports."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.failures: list[str] = []
        """The code of each heartbeat, adoption or return that failed."""
        self.flush_failures: list[str] = []
        self.adopted_messages = 0

    def fenced(self, node: int, epoch: int, what: str) -> None:
        self.told.append("fenced")

    def joined(self, node: int, epoch: int) -> None:
        self.told.append("joined")

    def heartbeat_failed(self, code: str, what: str = "") -> None:
        self.told.append("heartbeat failed")
        self.failures.append(code)

    def flush_failed(self, code: str, what: str = "") -> None:
        self.flush_failures.append(f"{code} {what}")

    def adopted(self, messages: int) -> None:
        self.adopted_messages += messages


class HoursOff:
    """A machine's clock that is wrong."""

    def __init__(self, clock: VirtualClock, hours: int) -> None:
        self._clock = clock
        self._off_ms = hours * 3_600_000

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._off_ms


class Node:
    """One coordinator, with producers and branches that only it calls."""

    def __init__(self, shared: Shared, clock: VirtualClock, hours_off: int = 0) -> None:
        self.store = shared.store()
        self.gates = self.store.gates
        self.destination = ScriptedDestination()
        self.watcher = Noted()
        settings = CoordinatorSettings(delivery=QUICK, check_back=QUICK, store_retry_ms=20, linger_ms=1)
        self.coordinator = Coordinator(
            self.store, {"http": self.destination}, settings, HoursOff(clock, hours_off), lambda: 0.0, self.watcher
        )
        clock.watch(self.coordinator.tick)

    def ask(self, begin: Callable[[Callable[[Reply], None]], None]) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        begin(reply.set_result)
        return reply

    async def prepare(self, said: Message) -> Reply:
        return await asyncio.wait_for(self.ask(lambda told: self.coordinator.prepare(said, told)), PATIENCE_S)

    async def submit(self, said: Message) -> Reply:
        return await asyncio.wait_for(self.ask(lambda told: self.coordinator.submit(said, told)), PATIENCE_S)

    async def abort(self, gid: str) -> Reply:
        return await asyncio.wait_for(self.ask(lambda told: self.coordinator.abort(gid, told)), PATIENCE_S)

    @property
    def active(self) -> int:
        return self.coordinator.gauges().active

    def rescheduled(self) -> list[str]:
        return [item.gid for batch in self.gates.batches for item in batch.items if isinstance(item, Reschedule)]


class Nodes:
    """The two nodes, and what they share."""

    def __init__(self, shared: Shared, clock: StillClock) -> None:
        self.clock = clock
        self.shared = shared
        self.a, self.b = Node(shared, clock), Node(shared, clock)

    async def until_state(self, gid: str, state: State) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                row = await self.shared.get(gid)
                if row is not None and row.state is state:
                    return
                await asyncio.sleep(0.002)

    async def come_due(self) -> None:
        """Let prepared messages fall due at nodes that have not been silent meanwhile."""
        self.clock.advance(36_000)
        self.shared.renew()

    async def beats(self, count: int = 3) -> None:
        """Wait for `count` pauses between heartbeats at each node that runs.

        The first heartbeat may come at once.
        """
        wanted = [(one.gates, one.gates.beats + count + 1) for one in (self.a, self.b) if one.coordinator.ready]
        await until(lambda: all(gates.beats >= beats for gates, beats in wanted))

    async def beats_with_time(self, count: int) -> None:
        """Let a quarter of a lease pass after each of `count` pauses.

        The clock stands still otherwise.
        """
        for _ in range(count):
            await self.beats(1)
            self.clock.advance(LEASE_MS // 4)
