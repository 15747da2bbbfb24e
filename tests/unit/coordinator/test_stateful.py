"""Any sequence of requests, answers, faults and restarts keeps the promises.

The promises are those of docs/explanation/promises.md; the store is a real one. A record beside it notes what becomes
durable, and the scripted producers and branches note there what they answer. Each promise is checked against this
record at the moment when it could be broken. In the end the faults stop, and every message must become final or parked.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.coordinator.harness import OK, QUICK, GatedStore, Harness, ScriptedDestination
from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.operator import Act
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import StoreError
from twophase.core.lifecycle import Event, State
from twophase.core.message import Branch, Message, decode, same_content, same_prepared
from twophase.core.options import Durability, Options
from twophase.destinations.base import Answer, Call
from twophase.stores.batch import Batch, Decide, Finish, FlushResult, Insert
from twophase.stores.rows import DecidedBy, HistoryRow, LiveRow
from twophase.testing.clock import VirtualClock

T = TypeVar("T")
GIDS = ("g0", "g1", "g2", "g3", "g4", "g5")
B, C, NOBODY = "http://bank-b/in", "http://bank-c/in", "carrier-pigeon://home"
CONTENTS = (
    (Branch(B, b"1"),),
    (Branch(B, b"2"),),
    (Branch(B, b"1"), Branch(C, b"1")),
    (Branch(""), Branch(C, b"3")),
    (),
)
VERDICTS = {
    "committed": Answer(200, b"{}", "committed"),
    "rolled_back": Answer(409, b"{}", "rolled_back"),
    "in_progress": Answer(425, b"{}", "in_progress"),
    "unknown": Answer(500, b"{}", "unknown"),
    "silence": Answer(0, error="timeout"),
}
BRANCH_ANSWERS = (OK, Answer(409), Answer(425), Answer(500), Answer(0, error="timeout"))
MANNERS = ("later", "at once", "twice", "raises")


class Notebook:
    """The record of what is durable, requested and answered, by gid."""

    def __init__(self) -> None:
        self.state: dict[str, State] = {}
        self.message: dict[str, Message] = {}
        self.asked_for: dict[str, set[str]] = defaultdict(set)
        self.succeeded: dict[str, set[str]] = defaultdict(set)
        self.under_way: Counter[tuple[str, str]] = Counter()
        self.wrong: list[AssertionError] = []
        """Promises that a flush broke.

        Raised in the flush, they would look like faults of the store.
        """

    def applied(self, batch: Batch, result: FlushResult) -> None:
        for index, item in enumerate(batch.items):
            if index in result.refused:
                continue
            gid, before = item.gid, self.state.get(item.gid)
            if isinstance(item, Insert):
                assert before is None, "a gid is inserted once"
                self.message[gid] = decode(item.body)
                self._becomes(gid, item.state)
            elif isinstance(item, Decide):
                assert before is State.PREPARED, "only what is undecided is decided (I3)"
                if item.body is not None:
                    self.message[gid] = decode(item.body)
                self._becomes(gid, State.SUBMITTED)
            elif isinstance(item, Finish):
                legal = {State.SUCCEEDED: State.SUBMITTED, State.FAILED: State.PREPARED}
                early = item.state is State.SUCCEEDED and self.decided_early(gid)
                forced = item.decided_by == DecidedBy.OPERATOR and before is State.SUBMITTED and self.stopped(gid)
                assert before is legal[item.state] or early or forced, "no contrary decision, and none twice (I3)"
                self._becomes(gid, item.state)

    def decided_early(self, gid: str) -> bool:
        """Return True when the message is decided early.

        The store holds it as prepared, but its producer has submitted it, and chose check-back durability (decision 7).
        """
        return (
            self.state.get(gid) is State.PREPARED
            and self.message[gid].options.durability is Durability.CHECK_BACK
            and bool(self.message[gid].check_url)
            and "submit" in self.asked_for[gid]
        )

    def stopped(self, gid: str) -> bool:
        """Return True when an operator stopped it: the stated exception to I3 (rule 24)."""
        return "stop" in self.asked_for[gid]

    def _becomes(self, gid: str, state: State) -> None:
        self.state[gid] = state
        said = self.asked_for[gid]
        if state is State.SUBMITTED:
            assert said & {"submit", "committed"}, "somebody said so, not time (I1, I5)"
        elif state is State.FAILED:
            assert said & {"abort", "rolled_back", "stop"}, "somebody said so, not time (I5)"
        elif state is State.SUCCEEDED:
            wanted = {branch.url for branch in self.message[gid].branches if branch.url}
            assert wanted <= self.succeeded[gid], "every branch has succeeded (I2)"


class WitnessedStore(GatedStore):
    """The real store, which records what it made durable, and may fail in three ways."""

    def __init__(self, path: Path, clock: VirtualClock, notebook: Notebook) -> None:
        super().__init__(path, clock)
        self.notebook = notebook
        self.after_commit: deque[Exception] = deque()
        self.reading: deque[Exception] = deque()

    async def flush(self, batch: Batch) -> FlushResult:
        result = await super().flush(batch)
        try:
            self.notebook.applied(batch, result)
        except AssertionError as error:
            self.notebook.wrong.append(error)
        if self.after_commit:
            raise self.after_commit.popleft()
        return result

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        if self.reading:
            raise self.reading.popleft()
        return await super().get(gid)

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> list[LiveRow]:
        if self.reading:
            raise self.reading.popleft()
        return list(await super().due(until_ms, after, limit))


class Town(ScriptedDestination):
    """Producers and branches that may answer late, at once, twice, or raise."""

    def __init__(self, notebook: Notebook) -> None:
        super().__init__()
        self.notebook = notebook
        self.verdicts: dict[str, deque[str]] = defaultdict(deque)
        self.manners: deque[str] = deque()
        self.holding = False
        self.waiting: list[Callable[[], None]] = []
        self.usual_verdict = "committed"

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        query = dict(call.query)
        gid, branch_id = query["gid"], query["branch_id"]
        asking = query["op"] == "msg"
        manner = self.manners.popleft() if self.manners else "later"
        if manner == "raises":
            raise RuntimeError("a destination's own fault")
        if asking:
            verdicts = self.verdicts[gid]
            verdict = verdicts.popleft() if verdicts else self.usual_verdict
            self.notebook.asked_for[gid].add(verdict)
            answer = VERDICTS[verdict]
        else:
            notebook = self.notebook
            decided = notebook.state.get(gid) is State.SUBMITTED or notebook.decided_early(gid)
            # A stop may be durable before it is acknowledged, and a call may begin meanwhile.
            assert decided or notebook.stopped(gid), (
                "called only when durably decided, or as its producer chose (I1, I8)"
            )
            assert not self.notebook.under_way[gid, branch_id], "one round at a time"
            script = self.script[call.url]
            answer = script.popleft() if script else OK
        self.notebook.under_way[gid, branch_id] += 1

        def tell() -> None:
            self.notebook.under_way[gid, branch_id] -= 1
            if answer is OK:
                self.notebook.succeeded[gid].add(call.url)
            on_answer(answer)
            if manner == "twice":
                on_answer(answer)

        if manner == "at once":
            tell()
        elif self.holding:
            self.waiting.append(tell)
        else:
            asyncio.get_running_loop().call_soon(tell)

    def let_go(self) -> None:
        self.holding = False
        waiting, self.waiting = self.waiting, []
        for tell in waiting:
            tell()

    async def stop(self) -> None:
        self.let_go()


class WatchedHarness(Harness):
    """A harness whose store, producers and branches record what happens."""

    def __init__(self, folder: Path, bounds: CoordinatorSettings) -> None:
        self.notebook = Notebook()
        super().__init__(folder, bounds)
        self.clock.runs = True

    def _build(self) -> Coordinator:
        self.town = Town(self.notebook)
        self.witness = WitnessedStore(self.path, self.clock, self.notebook)
        self.store = self.witness
        return Coordinator(self.store, {"http": self.town}, self.settings, self.clock, lambda: 0.0, self.watcher)

    async def restart(self) -> None:
        self.store.open.set()
        await self.coordinator.stop()
        self.coordinator = self._build()
        await self.coordinator.start()


class Promises(RuleBasedStateMachine):
    """The rules are the possible events; the record asserts the promises."""

    gids = st.sampled_from(GIDS)
    events = st.sampled_from([Event.PREPARE, Event.SUBMIT, Event.ABORT])
    messages = st.builds(
        Message,
        gids,
        st.sampled_from(CONTENTS),
        st.sampled_from(["http://bank-a/check", "http://bank-a/check", "http://bank-a/check", ""]),
        st.builds(
            Options,
            concurrent=st.booleans(),
            wait_result=st.booleans(),
            delay_ms=st.sampled_from([0, 0, 5_000, 100_000]),
            explicit_verdict=st.just(True),
            open=st.booleans(),
            durability=st.sampled_from([Durability.SUBMIT, Durability.SUBMIT, Durability.CHECK_BACK]),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.replies: list[list[Reply]] = []
        self.acts: list[asyncio.Future[None]] = []
        self.broken: list[BaseException] = []

    def run(self, work: Awaitable[T]) -> T:
        async def wrapped() -> T:
            return await work

        result = self.runner.run(wrapped())
        wrong = [*self.broken, *(self.harness.notebook.wrong if hasattr(self, "harness") else ())]
        if wrong:
            raise wrong[0]
        return result

    @initialize(
        active_max=st.sampled_from([1, 2, 100]),
        page_rows=st.sampled_from([1, 2, 100]),
        lane=st.sampled_from([1, 2, 100]),
        flush_items_max=st.sampled_from([1, 2, 100]),
    )
    def begin(self, active_max: int, page_rows: int, lane: int, flush_items_max: int) -> None:
        bounds = CoordinatorSettings(
            delivery=QUICK,
            check_back=QUICK,
            in_flight_max=2 * lane,
            in_flight_per_destination_max=lane,
            queue_waiting_max=lane,
            flush_items_max=flush_items_max,
            linger_ms=1,
            active_max=active_max,
            page_rows=page_rows,
            store_retry_ms=1,
            crowded_retry_ms=1,
        )

        async def start() -> None:
            asyncio.get_running_loop().set_exception_handler(self._heard)
            self.harness = WatchedHarness(Path(self.folder.name), bounds)
            await self.harness.coordinator.start()

        self.run(start())

    def _heard(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, Clumsy):
            self.broken.append(error)

    @rule(requests=st.lists(st.tuples(events, messages, st.booleans()), min_size=2, max_size=8))
    def requests(self, requests: list[tuple[Event, Message, bool]]) -> None:
        for event, said, clumsy in requests:
            self._request(event, said, clumsy)

    @rule(said=messages)
    def everybody_prepares_and_falls_silent(self, said: Message) -> None:
        for gid in GIDS:
            self._request(Event.PREPARE, msgspec.structs.replace(said, gid=gid), clumsy=False)
        self.time_passes(1_100)
        self.time_passes(36_000)

    def _request(self, event: Event, said: Message, clumsy: bool) -> None:
        gid = said.gid
        took: list[Reply] = []
        self.replies.append(took)

        def on_reply(reply: Reply) -> None:
            took.append(reply)
            try:
                self._check(event, said, reply)
            except AssertionError as error:
                self.broken.append(error)
            if clumsy:
                raise Clumsy

        async def ask() -> None:
            coordinator = self.harness.coordinator
            if event is Event.ABORT:
                self.harness.notebook.asked_for[gid].add("abort")
                coordinator.abort(gid, on_reply)
            else:
                self.harness.notebook.asked_for[gid].add("submit" if event is Event.SUBMIT else "prepare")
                (coordinator.submit if event is Event.SUBMIT else coordinator.prepare)(said, on_reply)
            await asyncio.sleep(0)

        self.run(ask())

    def _check(self, event: Event, said: Message, reply: Reply) -> None:
        """Check that an acknowledgement is durably true when it is given (I7, I8)."""
        if reply.error is not None:
            return
        state = self.harness.notebook.state.get(said.gid)
        if event is Event.ABORT:
            assert state is State.FAILED
            return
        known = self.harness.notebook.message[said.gid]
        if event is Event.PREPARE:
            assert state is State.PREPARED
            assert same_prepared(known, said)
        else:
            assert state in (State.SUBMITTED, State.SUCCEEDED) or self.harness.notebook.decided_early(said.gid)
            assert same_content(known, said, committed=True)

    @rule(
        acts=st.lists(
            st.tuples(gids, st.sampled_from(["stop", "park", "override", "redrive", "retry_now"])), max_size=3
        )
    )
    def operators(self, acts: list[tuple[str, str]]) -> None:
        async def begin() -> None:
            for gid, act in acts:
                self.acts.append(asyncio.ensure_future(self._act(gid, act)))
            await asyncio.sleep(0)

        self.run(begin())

    async def _act(self, gid: str, act: str) -> None:
        harness = self.harness
        override = act == "override"
        if override:
            act = "stop"
        if act == "stop":
            harness.notebook.asked_for[gid].add("stop")
        try:
            reply = await getattr(harness.coordinator.operator, act)(gid, Act("eve", override=override))
        except StoreError:
            return
        if act == "stop" and reply.error is None and harness.notebook.state.get(gid) is not State.FAILED:
            self.broken.append(AssertionError("a stop is acknowledged when it is durable (I8)"))

    @rule(verdict=st.sampled_from(sorted(VERDICTS)))
    def producers_usually_say(self, verdict: str) -> None:
        self.harness.town.usual_verdict = verdict

    @rule(gid=gids, verdicts=st.lists(st.sampled_from(sorted(VERDICTS)), max_size=3))
    def producer_will_say(self, gid: str, verdicts: list[str]) -> None:
        self.harness.town.verdicts[gid].extend(verdicts)

    @rule(url=st.sampled_from([B, C]), answers=st.lists(st.sampled_from(BRANCH_ANSWERS), max_size=4))
    def branch_will_answer(self, url: str, answers: list[Answer]) -> None:
        self.harness.town.script[url].extend(answers)

    @rule(manners=st.lists(st.sampled_from(MANNERS), max_size=3))
    def manners(self, manners: list[str]) -> None:
        self.harness.town.manners.extend(manners)

    @rule()
    def answers_are_held(self) -> None:
        self.harness.town.holding = True

    @rule()
    def answers_come(self) -> None:
        async def let_go() -> None:
            self.harness.town.let_go()
            await asyncio.sleep(0.002)

        self.run(let_go())

    @rule()
    def prepared_messages_come_due(self) -> None:
        self.time_passes(36_000)

    @rule(ms=st.sampled_from([500, 1_100, 61_000]))
    def time_passes(self, ms: int) -> None:
        async def advance() -> None:
            self.harness.clock.advance(ms)
            await asyncio.sleep(0.002)

        self.run(advance())

    @rule(kind=st.sampled_from(["before", "after", "reading"]), times=st.integers(1, 3))
    def store_will_fail(self, kind: str, times: int) -> None:
        witness = self.harness.witness
        faults = {"before": witness.failures, "after": witness.after_commit, "reading": witness.reading}[kind]
        faults.extend(StoreError("the disk is unwell") for _ in range(times))

    @rule(is_open=st.booleans())
    def store_hangs_or_goes_on(self, is_open: bool) -> None:
        async def change() -> None:
            (self.harness.store.open.set if is_open else self.harness.store.open.clear)()
            await asyncio.sleep(0.002)

        self.run(change())

    @rule(drains=st.booleans())
    def restart(self, drains: bool) -> None:
        async def restart() -> None:
            if drains:
                await self.harness.coordinator.drain(5)
            await self.harness.restart()
            assert all(len(took) == 1 for took in self.replies), "one reply each, also at a stop"
            self.replies.clear()

        self.run(restart())

    def teardown(self) -> None:
        try:
            if hasattr(self, "harness"):
                try:
                    self.run(self._end())
                finally:
                    self.run(self.harness.coordinator.stop())
        finally:
            self.runner.close()
            self.folder.cleanup()

    async def _end(self) -> None:
        harness, town, witness = self.harness, self.harness.town, self.harness.witness
        for faults in (witness.failures, witness.after_commit, witness.reading, town.manners):
            faults.clear()
        town.verdicts.clear()
        town.usual_verdict = "committed"
        town.script.clear()
        town.let_go()
        harness.store.open.set()
        # Virtual time is free; the store's threads and pauses need real time, and more of it on a busy machine.
        patience_ends_s = time.monotonic() + 30
        while time.monotonic() < patience_ends_s:
            harness.clock.advance(61_000)
            if await self._is_over():
                break
        assert all(len(took) == 1 for took in self.replies), "every request has one reply"
        assert not self.acts or not (await asyncio.wait(self.acts, timeout=30))[1], "every act has one, too"
        for gid, state in harness.notebook.state.items():
            view = await harness.coordinator.query(gid)
            assert view is not None, "what was acknowledged is still there"
            assert view.state is state
            assert view.parked or state in (State.SUCCEEDED, State.FAILED), f"{gid} was forgotten (I2, I9)"
        gauges = harness.coordinator.gauges()
        assert (gauges.branch_calls, gauges.branch_calls_waiting) == (0, 0)
        assert (gauges.check_backs, gauges.check_backs_waiting) == (0, 0)
        assert (await harness.coordinator.overview()).parked >= gauges.active
        assert gauges.active or not gauges.active_bytes

    async def _is_over(self) -> bool:
        for _ in range(25):
            # An operator's act may move on a message that is parked, which is not live: so this is asked first.
            answered = all(self.replies) and all(act.done() for act in self.acts)
            overview = await self.harness.coordinator.overview()
            gauges = self.harness.coordinator.gauges()
            live = overview.prepared + overview.submitted - overview.parked
            # The store shows what a flush wrote a moment before the record does.
            recorded = self.harness.store.under_way == 0
            if live == 0 and gauges.waiting_for_store == 0 and answered and recorded:
                return True
            await asyncio.sleep(0.002)
        return False


class Clumsy(Exception):
    """An error that a requester's callback raises."""


TestPromises = Promises.TestCase
TestPromises.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
