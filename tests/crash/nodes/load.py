"""A run: load through the round-robin, and faults; then rest, and the checker.

The load has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvloop

from tests.crash.checker import Findings
from tests.crash.nodes.checker import check_nodes
from tests.crash.nodes.cluster import Cluster, pause
from tests.crash.nodes.faults import Faults
from tests.crash.nodes.ledger import Fate, Ledger
from tests.crash.nodes.partners import Partners
from tests.crash.nodes.producers import Producers, Wire
from tests.crash.nodes.report import stories
from tests.crash.nodes.round_robin import RoundRobin
from tests.crash.nodes.witness import Follower

AT_A_TIME = 32
_REST_S = 60.0
_PRODUCERS_END_S = 150.0
"""Bound on the end of a producer.

It insists on its prepare and then on its submit, each request for as long as it waits for an answer.
"""


class Load:
    """Producers and partners in one event loop in one thread."""

    def __init__(self, ports: list[int], seed: int, at_a_time: int) -> None:
        self.ledger = Ledger()
        self._ports = ports
        self._seed = seed
        self._at_a_time = at_a_time
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._producers: Producers | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._goes_on = threading.Event()
        self._all_sent = threading.Event()
        self._rest = asyncio.Event()
        self._partners = Partners(self.ledger)
        self.failed: BaseException | None = None

    def start(self) -> None:
        self._thread.start()
        assert self._goes_on.wait(10), "the load starts"

    @property
    def messages(self) -> int:
        """Return the number of messages begun."""
        return len(self.ledger.records)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def enough(self) -> None:
        """Begin no more messages, and return when the last producer has ended.

        The partners answer until `stop`: a message that a producer sends later can never become final.
        """
        if self._producers is not None:
            self._tell(self._producers.enough.set)
            assert self._all_sent.wait(_PRODUCERS_END_S), "every producer comes to its end"

    def stop(self) -> None:
        """End the load, when everything is at rest."""
        self.enough()
        self._tell(self._rest.set)
        self._thread.join(90)

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            if self._loop is not None:
                self._loop.call_soon_threadsafe(what)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 -- the caller that waits for the thread reports it
            self.failed = error
        finally:
            self._goes_on.set()
            self._all_sent.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        chance = random.Random(self._seed)
        partners, ring = self._partners, RoundRobin(self._ports)
        await partners.start()
        await ring.start()
        wire = Wire(ring.port, chance)
        self._producers = Producers(self.ledger, wire, partners.port, chance, f"n{self._seed:x}")
        self._goes_on.set()
        try:
            await self._producers.run(self._at_a_time)
            self._all_sent.set()
            wire.close()
            await self._rest.wait()
        finally:
            ring.stop()
            partners.stop()
            await asyncio.sleep(0.1)  # the transports' last words


@dataclass
class Outcome:
    """The result of a run."""

    seed: int
    findings: Findings
    seconds: float
    rest_seconds: float
    messages: int
    committed: int
    rolled_back: int
    unheard: int
    faults: dict[str, int]
    counts: dict[str, int]
    history_rows: int
    ledger: Ledger

    def summary(self) -> str:
        """Return a few lines for a person."""
        faults = ", ".join(f"{count} × {name.replace('_', ' ')}" for name, count in sorted(self.faults.items()))
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return (
            f"seed {self.seed}: {self.messages} messages in {self.seconds:.0f} s, {self.messages / self.seconds:.0f}/s;"
            f" {self.committed} committed, {self.rolled_back} rolled back, {self.unheard} unheard of; at rest after"
            f" {self.rest_seconds:.1f} s\n"
            f"faults: {faults}\ncounted: {counts}\nhistory followed: {self.history_rows} rows without a gap"
        )


@contextlib.contextmanager
def under_load(cluster: Cluster, seed: int, at_a_time: int = AT_A_TIME) -> Iterator[Load]:
    """Run all nodes, and load with them, until the block ends."""
    cluster.start()
    load = Load(cluster.ports, seed, at_a_time)
    load.start()
    try:
        yield load
    finally:
        load.stop()
    if load.failed is not None:
        raise load.failed


def run(
    cluster: Cluster,
    *,
    messages: int,
    rounds: int,
    seed: int | None = None,
    at_a_time: int = AT_A_TIME,
    peace_s: float = 0.6,
    progress: Callable[[int, int], None] = lambda messages, faults: None,
) -> Outcome:
    """Send until enough messages have ended, and check every promise.

    At least `messages` end, and at least `rounds` of faults pass.

    Arguments:
        at_a_time: producers.
        peace_s: about how long nothing goes wrong after each fault.
        progress: called after each fault with the number of ended messages and of faults.
    """
    seed = random.randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    began = time.monotonic()
    with Follower(cluster.dsn) as follower, under_load(cluster, seed, at_a_time) as load:
        faults = Faults(cluster, chance, lambda: progress(follower.rows, faults.counts.total()))
        pause(1.0)
        done = 0
        while load.alive and (done < rounds or follower.rows < messages):
            if done < rounds or messages - follower.rows > messages // 10:
                faults.round(peace_s)
                done += 1
            else:
                pause(0.5)
        load.enough()
        seconds = time.monotonic() - began
        cluster.wait_rest(_REST_S)
        rest_seconds = time.monotonic() - began - seconds
        stuck = stories(cluster, load.ledger)
    ledger = load.ledger
    findings = check_nodes(cluster.dsn, ledger)
    findings.violations.extend(stuck)
    findings.none(faults.wrong, "nodes did not come back as they should")
    findings.none(follower.gaps, "gaps met by a reader that follows history")
    fates = Counter(record.fate for gid, record in ledger.records.items() if gid not in findings.unheard)
    ends = (fates[Fate.COMMITTED], fates[Fate.ROLLED_BACK], len(findings.unheard))
    findings.expect(sum(ends) == load.messages, f"{load.messages} messages came to {ends} ends")
    return Outcome(
        seed,
        findings,
        seconds,
        rest_seconds,
        load.messages,
        *ends,
        dict(faults.counts),
        dict(ledger.counts),
        follower.rows,
        ledger,
    )
