"""The connections of one host, and the calls that wait for them.

Promise: a host's calls use its own connections only, so a host that hangs delays no other; what waits is bounded,
served in order, and still ends by its own timeout. The connection used last is used next, so that those not needed stay
idle and can be closed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from functools import partial
from typing import NamedTuple, Protocol

from twophase.http_client.byte_budget import ByteBudget
from twophase.http_client.connection import Connection
from twophase.http_client.dial import Dialer
from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase.http_client.reader import KnownHeads, ResponseReader
from twophase.http_client.request import PendingCall
from twophase.http_client.timeouts import Deadline, Timeouts


class Limits(NamedTuple):
    """The bounds of a client."""

    connections_per_host: int
    connections_max: int
    queue_per_host: int
    response_bytes_max: int
    header_bytes_max: int
    connect_timeout_ms: int
    idle_timeout_ms: int
    budget: ByteBudget | None = None


class Permits(Protocol):
    """The permits for connections that all hosts share."""

    scarce: bool
    """True while some host waits for a permit: no host may keep an idle connection."""

    def take(self, host: HostPool) -> bool:
        """Take a permit; False when all are taken.

        Then `host.open_more` is called as soon as one is free.
        """
        ...

    def give_back(self, host: HostPool) -> None:
        """Give back the permit of a connection of `host` that is gone, or was never made."""
        ...


class _Attempt:
    """One attempt to connect.

    It is for one call only, or for the first call that waits when it succeeds.
    """

    __slots__ = ("_pool", "connection", "reserved_for", "task")

    def __init__(self, pool: HostPool, reserved_for: PendingCall | None) -> None:
        self._pool = pool
        self.connection: Connection | None = None
        self.reserved_for = reserved_for
        self.task: asyncio.Task[None] | None = None

    def make(self) -> Connection:
        limits = self._pool.limits
        reader = ResponseReader(
            body_bytes_max=limits.response_bytes_max,
            header_bytes_max=limits.header_bytes_max,
            heads=self._pool.heads,
            account=None if limits.budget is None else limits.budget.account(self._pool.key),
        )
        self.connection = Connection(self._pool, reader, self.reserved_for)
        return self.connection

    @property
    def made(self) -> bool:
        return self.connection is not None and self.connection.made

    def let_go(self, call: PendingCall) -> str:  # noqa: ARG002 - it carries one call; `done` tells the rest
        return "a connection"


class HostPool:
    """The connections to one scheme, host and port."""

    __slots__ = (
        "_attempts",
        "_connections",
        "_dialer",
        "_idle",
        "_loop",
        "_permits",
        "_sweep_deadline",
        "_timeouts",
        "_waiting",
        "heads",
        "held",
        "key",
        "limits",
    )

    def __init__(
        self,
        key: str,
        dialer: Dialer,
        permits: Permits,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
    ) -> None:
        self.key = key
        self.limits = limits
        self.held = 0
        """Permits held: by connections and attempts to connect."""
        self._dialer = dialer
        self._permits = permits
        self._loop = loop
        self._timeouts = timeouts
        self._connections: set[Connection] = set()
        self._attempts: set[_Attempt] = set()
        self._idle: deque[Connection] = deque()
        self._waiting: OrderedDict[PendingCall, None] = OrderedDict()
        self._sweep_deadline: Deadline | None = None
        self.heads = KnownHeads()
        """The heads of this host's responses."""

    @property
    def under_way(self) -> int:
        """Return the number of calls sent and not answered yet, and of calls waiting."""
        return len(self._connections) - len(self._idle) + len(self._waiting)

    @property
    def unused(self) -> bool:
        """True when nothing would be lost with this pool."""
        return not self.held and not self._waiting

    def take_on(self, call: PendingCall) -> None:
        """Send the call now when a connection is idle, else let it wait for one.

        It never calls the caller back.
        """
        idle = self._idle
        while idle:
            if idle.pop().send(call):
                return
        call.carrier = self
        self._waiting[call] = None
        self.open_more()
        if len(self._waiting) - len(self._attempts) > self.limits.queue_per_host:
            del self._waiting[call]
            call.carrier = None
            text = f"{self.limits.queue_per_host} calls wait for {self.key} already"
            self._loop.call_soon(call.finish, HttpError(HttpErrorKind.OVERLOADED, text))

    def let_go(self, call: PendingCall) -> str:
        """Forget a waiting call that ended before its time."""
        del self._waiting[call]
        return "a free connection" if self._connections else "a connection"

    def open_more(self) -> None:
        """Attempt to connect for the calls that wait and have no attempt yet.

        The bounds limit the attempts.
        """
        while (
            len(self._attempts) < len(self._waiting)
            and self.held < self.limits.connections_per_host
            and self._permits.take(self)
        ):
            self.held += 1
            self._attempt(None)

    def _attempt(self, reserved_for: PendingCall | None) -> None:
        attempt = _Attempt(self, reserved_for)
        if reserved_for is not None:
            reserved_for.carrier = attempt
        self._attempts.add(attempt)
        attempt.task = self._loop.create_task(self._dialer.dial(attempt.make))
        # A callback, not a `finally` in the task: a task cancelled before its first step never enters its body.
        attempt.task.add_done_callback(partial(self._attempt_over, attempt))

    def _attempt_over(self, attempt: _Attempt, task: asyncio.Task[None]) -> None:
        self._attempts.discard(attempt)
        if attempt.made:
            self.open_more()
            return
        # One attempt failed, so one call fails: every waiting call costs an unreachable host one attempt.
        call = attempt.reserved_for
        failure = HttpError(HttpErrorKind.CLOSED, "the client is closed")
        if not task.cancelled():
            failure = _as_http_error(task)
            if call is None and self._waiting:
                call, _ = self._waiting.popitem(last=False)
        self._free_permit()
        if call is not None:
            call.finish(failure)

    def _free_permit(self) -> None:
        self.held -= 1
        assert self.held >= 0
        if not self.held and self._sweep_deadline is not None:
            self._sweep_deadline.pop(self, None)
            self._sweep_deadline = None
        self._permits.give_back(self)

    # Reports of a connection.

    def connected(self, connection: Connection) -> None:
        """Give a new connection to the call it is for, else to the first that waits."""
        self._connections.add(connection)
        call, connection.reserved_for = connection.reserved_for, None
        if call is None or call.done:
            self.released(connection)
        elif not connection.send(call):
            call.finish(HttpError(HttpErrorKind.CLOSED, f"{self.key} closed the connection at once"))

    def released(self, connection: Connection) -> None:
        """Give a free connection to the call that waits longest, else keep it idle."""
        if self._waiting:
            call, _ = self._waiting.popitem(last=False)
            if not connection.send(call):  # it ended at the moment it became free; `lost` will be called
                self._waiting[call] = None
                self._waiting.move_to_end(call, last=False)
        elif self._permits.scarce:
            connection.abort()
        else:
            connection.idle_since_s = self._loop.time()
            self._idle.append(connection)
            if self._sweep_deadline is None:
                self._sweep_deadline = self._timeouts.after(self, self.limits.idle_timeout_ms)

    def lost(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self._forget(connection)
        self._free_permit()

    def retry(self, connection: Connection, call: PendingCall) -> None:
        """Give the permit of a stale connection to a fresh one for the same call.

        There is no second retry: only connections that carried a response before count as stale.
        """
        self._forget(connection)
        self._attempt(call)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    # Idle connections.

    def on_timeout(self) -> None:
        """Close connections that have been idle for long enough; called by `Timeouts`."""
        self._sweep_deadline = None
        oldest_s = self._loop.time() - self.limits.idle_timeout_ms / 1000
        while self._idle and self._idle[0].idle_since_s <= oldest_s:
            self._idle.popleft().abort()
        if self._idle:
            rest_ms = int((self._idle[0].idle_since_s - oldest_s) * 1000) + 1
            self._sweep_deadline = self._timeouts.after(self, rest_ms)

    def close_one_idle(self) -> bool:
        """Close the connection that has been idle longest; False without an idle one."""
        if self._idle:
            self._idle.popleft().abort()
            return True
        return False

    def end(self, error: HttpError) -> list[asyncio.Task[None]]:
        """Give every call `error` and drop every connection.

        Returns the attempts being cancelled.
        """
        waiting = list(self._waiting)
        self._waiting.clear()
        attempts = list(self._attempts)
        for call in [*waiting, *(attempt.reserved_for for attempt in attempts)]:
            if call is not None:
                call.finish(error)
        for connection in list(self._connections):
            connection.end(error)
        tasks = [attempt.task for attempt in attempts if attempt.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    def abandon(self) -> None:
        """Close the connections of an event loop that is closed."""
        for connection in self._connections:
            connection.abandon()


def _as_http_error(task: asyncio.Task[None]) -> HttpError:
    """Return the reason why an attempt to connect failed.

    A fault that is no failure to connect is reported to the loop as well.
    """
    error = task.exception()
    if isinstance(error, HttpError):
        return error
    task.get_loop().call_exception_handler(
        {"message": "an attempt to connect ended in an unexpected way", "exception": error, "task": task}
    )
    return HttpError(HttpErrorKind.CONNECT, f"unexpected {type(error).__name__}")
