"""One run of a workload against one server: warm up, measure, drain, account.

In a closed loop (saturating), every connection sends as soon as it is answered. In an open loop messages begin at fixed
moments, independent of the server. A message that finds no free connection waits for one, and its latency counts from
the moment of its intended start, so every message that a stall would have hit shows the stall (no coordinated
omission). That holds to the end: a message that was due in the window and found no connection by its end is begun in
the drain, and counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from benchmarks.failure import BenchmarkFailed
from benchmarks.load.ledger import Ledger
from benchmarks.load.measurement import Measurement
from benchmarks.load.producer import Producer, Sender
from benchmarks.load.sink import IN_PROGRESS, ROLLED_BACK, Sink
from benchmarks.load.ticker import Ticker
from benchmarks.load.window import OnProgress, Watch, drained, silent, steady
from benchmarks.load.workload import Bodies, Gids, Mode, Template, Workload
from benchmarks.servers.processes import Meter, Process
from twophase.http_client.address import Address

_POLL_S: Final = 0.005
_RECONNECT_S: Final = 0.1
_AFTER_FAILURE_S: Final = 0.02
_TICKS_S_MIN: Final = 0.0001
_CONNECT_S: Final = 5.0


class Run:
    """The producers' `Source`. Use `measure`, or `opened` and `burst`.

    Arguments:
        address: of the dtm API.
        workload: the messages to send.
        on_progress: called with the progress.
        ledger: keeps the account.
        tls: the context of its connections to an `https` address; by default it trusts the system's authorities.
    """

    def __init__(
        self,
        address: Address,
        workload: Workload,
        on_progress: OnProgress = silent,
        ledger: Ledger | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.workload = workload.check()
        self.address = address
        self.submits = workload.mode is not Mode.PREPARE
        self.ledger = ledger or Ledger(workload.branches, opened=workload.rate > 0)
        self.heads: dict[bytes, int] = {}
        self.sink = Sink(self.ledger, workload.payload_bytes, IN_PROGRESS if self.submits else ROLLED_BACK)
        self._on_progress = on_progress
        self._gids = Gids()
        self._producers: set[Sender] = set()
        self._idle: list[Sender] = []
        self._due: deque[float] = deque()
        self._prepared: list[tuple[bytes, int]] = []
        self._tls = (tls or ssl.create_default_context()) if address.tls else None
        self._generating = False
        self._first_s = 0.0
        self._ticked = 0
        self._under_way = 0
        self._left = sys.maxsize
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        """Return the server's address as text for people."""
        return self.address.key

    async def measure(self, processes: Sequence[Process] = ()) -> Measurement:
        """Do the whole run.

        Arguments:
            processes: whose CPU and memory to account.

        Raises:
            BenchmarkFailed: the server cannot be reached, or every request fails.
        """
        async with self.opened():
            return await self._measured(Meter(processes))

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep connections and sink open until the block ends."""
        self._body = self._bodies(await self.sink.start(self._own_address(), self.workload.receiver_port))
        try:
            with steady():
                await self._connect()
                yield
        finally:
            self._generating = False
            for task in self._tasks:
                task.cancel()
            self.sink.stop()
            for producer in self._producers:
                producer.cut()
            await self._hang_up()

    async def burst(self, messages: int) -> float:
        """Begin `messages` messages, as fast as they are answered.

        It returns the seconds until all are answered. It needs `opened`.
        """
        started_s = time.perf_counter()
        self._left = messages
        self._start()
        while (self._left or self._under_way) and time.perf_counter() < started_s + self.workload.drain_s:
            await asyncio.sleep(_POLL_S)
        self._generating = False
        self.ledger.unanswered = self._under_way
        return time.perf_counter() - started_s

    async def _measured(self, meter: Meter) -> Measurement:
        watch = Watch(self.workload, self.ledger, lambda: self._done, meter, self._on_progress, self._waiting)
        ticker = self._start()
        try:
            window = await watch.measure()
            if ticker is not None:
                self._tick()  # the messages that became due since the last tick
        finally:
            if ticker is None:
                self._generating = False
            else:
                ticker.stop()  # no more messages become due; the due ones are begun, also by new connections
        drained_s = await drained(self.ledger, lambda: self._under_way, self.workload.drain_s, self._due)
        self._generating = False
        await self._abort_prepared()
        return window.measurement(self.workload, self.ledger, drained_s)

    @property
    def _done(self) -> int:
        """Return the number of messages whose measured work is complete.

        They are at the sink, or acknowledged where no branch is called.
        """
        return self.ledger.delivered if self.submits else self.ledger.prepared

    def _waiting(self) -> int:
        """Return the number of messages that are due at this moment, and not begun."""
        if self.workload.rate:
            self._tick()
        return len(self._due)

    def _start(self) -> Ticker | None:
        self._generating = True
        self._first_s = time.perf_counter() + 0.01
        if self.workload.rate > 0:
            return Ticker(max(1 / self.workload.rate, _TICKS_S_MIN), self._first_s, self._tick)
        idle, self._idle = self._idle, []
        for producer in idle:
            self._next(producer, time.perf_counter())
        return None

    async def _abort_prepared(self) -> None:
        """Abort every prepared message that is left."""
        ends_s = time.perf_counter() + self.workload.drain_s
        while (self._prepared or self._under_way) and time.perf_counter() < ends_s:
            while self._prepared and self._idle:
                gid, number = self._prepared.pop()
                self._under_way += 1
                self._idle.pop().abort(self._body(gid, number))
            await asyncio.sleep(0)

    def _bodies(self, sink_url: str) -> Bodies:
        """Return the writer of each request's body."""
        self.template = Template(self.address, self.workload, sink_url)
        return self.template.body

    async def _hang_up(self) -> None:
        """Close the connections that the producers share."""

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                await asyncio.gather(*(self._dial() for _ in range(self.workload.connections)))
        except (OSError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise BenchmarkFailed(f"no connection to {self.place}: {why}") from error

    def _own_address(self) -> str:
        """Return the address of this machine on the route to the server.

        The server can call branches there.
        """
        host = self.address.host
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, self.address.port))  # nothing is sent: the call only chooses a route
            except OSError as error:
                raise BenchmarkFailed(f"no way to {self.place}: {error.strerror}") from error
            own: str = probe.getsockname()[0]
            return own

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            lambda: Producer(self), self.address.host, self.address.port, ssl=self._tls, server_hostname=None
        )

    async def _dial_again(self) -> None:
        while self._generating:
            await asyncio.sleep(_RECONNECT_S)
            try:
                await self._dial()
            except OSError as error:
                self.ledger.fail(f"no connection: {error.strerror}")
            else:
                return

    def connected(self, producer: Sender) -> None:
        """Give work to a producer that can begin."""
        self._producers.add(producer)
        if self._generating:
            self._next(producer, time.perf_counter())
        else:
            self._idle.append(producer)

    def lost(self, producer: Sender) -> None:
        """Replace a producer whose connection is gone."""
        self._producers.discard(producer)
        if producer in self._idle:
            self._idle.remove(producer)
        else:
            self._under_way -= 1
        if self._generating:
            task = asyncio.ensure_future(self._dial_again())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def finished(self, producer: Sender, *, failed: bool) -> None:
        """Give more work to a producer that has finished a message, or failed to."""
        self._under_way -= 1
        if failed and not self.workload.rate:
            self._idle.append(producer)
            asyncio.get_running_loop().call_later(_AFTER_FAILURE_S, self._resume, producer)
        else:
            self._next(producer, time.perf_counter())

    def _resume(self, producer: Sender) -> None:
        if producer in self._idle and self._generating:
            self._idle.remove(producer)
            self._next(producer, time.perf_counter())

    def _next(self, producer: Sender, now_s: float) -> None:
        if not self._generating or not self._left:
            self._idle.append(producer)
        elif not self.workload.rate:
            self._begin(producer, now_s)
        elif self._due:
            self._begin(producer, self._due.popleft())
        else:
            self._idle.append(producer)

    def _tick(self) -> None:
        """Begin the messages that are due by now."""
        now_s = time.perf_counter()
        rate = self.workload.rate
        due = int((now_s - self._first_s) * rate) + 1
        while self._ticked < due:
            intended_s = self._first_s + self._ticked / rate
            self._ticked += 1
            if self._idle:
                self.ledger.late.add(now_s - intended_s)
                self._begin(self._idle.pop(), intended_s)
            else:
                self._due.append(intended_s)

    def _begin(self, producer: Sender, intended_s: float) -> None:
        self._under_way += 1
        self._left -= 1
        number = self.ledger.begin(intended_s)
        gid = self._new_gid()
        body = self._body(gid, number)
        if self.workload.mode is Mode.SUBMIT:
            producer.submit(number, body, intended_s)
        else:
            if not self.submits:
                self._prepared.append((gid, number))
            producer.prepare(number, body, intended_s)

    def _new_gid(self) -> bytes:
        """Return the next message's gid."""
        return self._gids.new()
