"""A coordinator on a real SQLite store, with scripted destinations.

The tests own its clock.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.null_observer import NullObserver
from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.dispatch.alerts import Alerts, Webhook
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Owner, Reply
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.options import Options
from twophase.core.schedule import Schedule
from twophase.destinations.base import Answer, Call, Destination
from twophase.destinations.queue import QueueDestination
from twophase.stores.base import Purged
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.rows import Attempt, LiveRow
from twophase.stores.sqlite.store import SqliteStore
from twophase.testing.clock import VirtualClock

CHECK = "http://bank-a/check"
IN = "http://bank-b/in"
HOOK = "https://alerts/in"
OK = Answer(200, b'{"dtm_result":"SUCCESS"}')
PATIENCE_S = 60
"""Timeout of waits that depend on the machine alone, however busy it is."""
QUICK = Schedule(first_ms=1_000, factor=2, cap_ms=60_000, jitter=0.0)


class StillClock(VirtualClock):
    """A clock that stands still between a test's jumps.

    Nothing falls due because the machine was slow from one step to the next. A test that wants time to pass by itself
    sets `runs`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs = False
        self._began_ms = super().now_ms()

    def now_ms(self) -> int:
        return super().now_ms() if self.runs else self._began_ms + self._offset_ms

    def stand_still(self) -> None:
        """Stop at the present time."""
        self._began_ms, self.runs = super().now_ms() - self._offset_ms, False


def set_back(clock: VirtualClock, ms: int) -> None:
    """Set the clock back, and notify its watchers.

    It stands for a clock that was ahead, or for another machine's.
    """
    clock._offset_ms -= ms
    for watcher in clock._watchers:
        watcher()


class ScriptedDestination:
    """Destinations that answer each address from its script, then with 200.

    The calls are kept in order.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.script: dict[str, deque[Answer]] = defaultdict(deque)
        self.held: dict[str, list[Callable[[], None]]] = {}
        self._called = asyncio.Condition()

    def accepts(self, url: str) -> str | None:
        return None if "://" in url else "not an address"

    def key(self, url: str) -> str:
        return "/".join(url.split("/")[:3])

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        self.calls.append(call)
        script = self.script[call.url]
        answer = script.popleft() if script else OK
        if call.url in self.held:
            self.held[call.url].append(lambda: on_answer(answer))
        else:
            asyncio.get_running_loop().call_soon(on_answer, answer)

    def hold(self, url: str) -> None:
        """Answer nothing at this address until `release`."""
        self.held[url] = []

    def release(self, url: str) -> None:
        """Give the answers that were held."""
        for answer in self.held.pop(url):
            answer()

    async def stop(self) -> None:
        """Nothing to close."""

    def urls(self) -> list[str]:
        """Return the addresses called, in order."""
        return [call.url for call in self.calls]


class GatedStore(SqliteStore):
    """The real store, whose flushes a test may hold back or let fail."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        super().__init__(path, clock=clock)
        self.open = asyncio.Event()
        self.open.set()
        self.held_flushes = 0
        self.under_way = 0
        """The number of flushes that write, and of pages of due rows that are being read."""
        self.failures: deque[Exception] = deque()
        self.batches: list[Batch] = []

    async def flush(self, batch: Batch) -> FlushResult:
        self.held_flushes += 1
        await self.open.wait()
        self.held_flushes -= 1
        if self.failures:
            raise self.failures.popleft()
        self.batches.append(batch)
        self.under_way += 1
        try:
            return await super().flush(batch)
        finally:
            self.under_way -= 1

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        self.under_way += 1
        try:
            return await super().due(until_ms, after, limit)
        finally:
            self.under_way -= 1


class Watcher(NullObserver):
    """An observer that keeps incidents, parked messages and results.

    The results are those of alerts, cleanings and probes of check addresses.
    """

    def __init__(self) -> None:
        self.incidents: list[tuple[str, str]] = []
        self.steps: list[Purged] = []
        self.cleaning_failures: list[str] = []
        self.parked_messages: list[tuple[str, str]] = []
        self.alerts: list[str] = []
        self.probes: list[str] = []
        self.check_addresses: list[tuple[str, str]] = []
        self.not_done_attempts: list[Attempt] = []
        self.overdue_messages = 0

    def probed(self, result: str) -> None:
        self.probes.append(result)

    def check_address_failing(self, target: str, state: str, what: str, remedy: str) -> None:
        self.check_addresses.append((target, state))

    def check_address_well(self, target: str) -> None:
        self.check_addresses.append((target, "well"))

    def not_done(self, attempt: Attempt) -> None:
        self.not_done_attempts.append(attempt)

    def parked(self, gid: str, why: str) -> None:
        self.parked_messages.append((gid, why))

    def alerted(self, result: str, place: str, what: str = "") -> None:
        self.alerts.append(result)

    def purged(self, step: Purged) -> None:
        self.steps.append(step)

    def cleaning_failed(self, code: str, what: str = "") -> None:
        self.cleaning_failures.append(code)

    def overdue(self, messages: int) -> None:
        self.overdue_messages += messages

    def incident(self, gid: str, what: str) -> None:
        self.incidents.append((gid, what))


class Harness:
    """One coordinator and its surroundings."""

    def __init__(self, folder: Path, settings: CoordinatorSettings | None = None) -> None:
        self.path = folder / "store.db"
        self.settings = settings or CoordinatorSettings(delivery=QUICK, check_back=QUICK)
        self.clock = StillClock()
        self.destination = ScriptedDestination()
        self.hook = ScriptedDestination()
        self.watcher = Watcher()
        self.store = GatedStore(self.path, self.clock)
        self.coordinator = self._build()
        self.clock.watch(self._tick)

    def _build(self) -> Coordinator:
        alerts = Alerts(Webhook(HOOK), self.hook, after=3, timeout_ms=1_000, observer=self.watcher)
        destinations: dict[str, Destination] = {"http": self.destination, "queue": QueueDestination()}
        return Coordinator(self.store, destinations, self.settings, self.clock, lambda: 0.0, self.watcher, alerts)

    def _tick(self) -> None:
        self.coordinator.tick()

    async def restart(self) -> None:
        """Stop without a drain, as a crash does, and start on the same file."""
        await self.coordinator.stop()
        self.store = GatedStore(self.path, self.clock)
        self.coordinator = self._build()
        await self.coordinator.start()

    def prepare_soon(self, message: Message, owner: Owner | None = None) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.coordinator.prepare(message, reply.set_result, owner=owner)
        return reply

    def submit_soon(self, message: Message) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.coordinator.submit(message, reply.set_result)
        return reply

    async def prepare(self, message: Message) -> Reply:
        return await asyncio.wait_for(self.prepare_soon(message), PATIENCE_S)

    async def submit(self, message: Message) -> Reply:
        return await asyncio.wait_for(self.submit_soon(message), PATIENCE_S)

    async def abort(self, gid: str) -> Reply:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.coordinator.abort(gid, reply.set_result)
        return await asyncio.wait_for(reply, PATIENCE_S)

    async def state(self, gid: str) -> State | None:
        """Return the stored state."""
        view = await self.coordinator.query(gid)
        return None if view is None else view.state

    async def until_state(self, gid: str, state: State) -> None:
        """Wait until the stored state is this one, and memory knows it.

        Memory knows it somewhat later: until then a clock that jumps moves the due time that memory reckons.
        """
        async with asyncio.timeout(PATIENCE_S):
            while await self.state(gid) is not state or self._knows_another(gid, state):
                await asyncio.sleep(0.001)

    def _knows_another(self, gid: str, state: State) -> bool:
        active = self.coordinator._memory.get(gid)
        return active is not None and active.state is not state

    async def settled(self) -> None:
        """Let everything that is under way, and does not wait for time, end."""
        quiet = 0
        async with asyncio.timeout(PATIENCE_S):
            while quiet < 5:
                gauges = self.coordinator.gauges()
                calls = gauges.branch_calls + gauges.check_backs
                held = sum(map(len, self.destination.held.values()))
                busy = gauges.waiting_for_store or self.store.under_way or calls > held
                quiet = 0 if busy else quiet + 1
                await asyncio.sleep(0.002)


def message(gid: str, *urls: str, check_url: str = CHECK, payload: bytes = b"{}", **options: object) -> Message:
    """Make a message with a branch for each URL."""
    branches = tuple(Branch(url, payload) for url in urls or (IN,))
    return Message(gid, branches, check_url, Options(**options))  # type: ignore[arg-type]
