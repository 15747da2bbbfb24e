"""A connection that comes back by itself, for one caller at a time.

`ReconnectingConnection` opens it when it is needed, and another when it was lost, within the bound that a request may
wait for the database; `Readers` are a few connections for questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from twophase.core.credentials import shown
from twophase.core.errors import StoreError, StoreUnavailable
from twophase.stores.postgres.connection import Connection, connect
from twophase.stores.postgres.failures import DRIVER_LOST, FAILURES, is_beaten, is_lost, is_passing, store_error

T = TypeVar("T")

_PAUSE_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
_LATE_S: Final = 1.0


def _pause_s(tries: int) -> float:
    return _PAUSE_S[min(tries, len(_PAUSE_S) - 1)]


class Outage:
    """Since when the database is away, as far as those know that share this."""

    def __init__(self) -> None:
        self.since_s: float | None = None

    def began(self, at_s: float) -> None:
        """Record that a call which began then has failed."""
        if self.since_s is None:
            self.since_s = at_s

    def is_over(self) -> None:
        """Record that a call succeeded."""
        self.since_s = None


class Deadline:
    """When a caller has waited long enough for the database."""

    def __init__(self, wait_ms: int, away_since_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self.began_s = now_s = self._loop.time()
        self._at = now_s + wait_ms / 1000
        if away_since_s is not None:
            self._at = min(self._at, max(away_since_s + wait_ms / 1000, now_s + _LATE_S))
        self.wait_ms = wait_ms
        self.losses = 0
        """The number of times that the connection was lost within this call."""
        self.cause: BaseException | None = None
        """The reason, as far as one is known: it is more exact than that time is up."""

    def left_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self._at - self._loop.time())


class ReconnectingConnection:
    """One connection for one caller at a time.

    Arguments:
        url: the database.
        wait_ms: how long a caller waits for a database that is away.
        outage: shared by connections of which a caller takes any; one of its own by default.
    """

    def __init__(self, url: str, wait_ms: int, outage: Outage | None = None) -> None:
        self.url = url
        self.database = shown(url)
        self.lock = asyncio.Lock()
        self._wait_ms = wait_ms
        self._connection: Connection | None = None
        self._closed = False
        self._outage = outage or Outage()

    def open(self) -> None:
        """Let it connect, also after `close`."""
        self._closed = False

    def deadline(self) -> Deadline:
        """Return a new bound for one call.

        An outage is waited for once, not by every call anew: a request may have waited behind other calls already, and
        all of it together is to stay near the bound. Who comes late gets a second, enough to see that all is well.
        """
        return Deadline(self._wait_ms, self._outage.since_s)

    async def take_turn(self, deadline: Deadline) -> None:
        """Acquire the lock within the bound.

        Raises:
            StoreUnavailable: those before took too long.
        """
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self.lock.acquire()
        except TimeoutError as error:
            raise StoreUnavailable(f"{self.database}: no turn in {deadline.wait_ms} ms.") from error

    async def connected(self, deadline: Deadline) -> Connection:
        """Return the connection, opened anew when it was lost; the caller holds the lock.

        Raises:
            StoreUnavailable: not before the deadline.
            StoreError, ConfigurationError: waiting will not help.
        """
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self.drop()
        if deadline.losses > 1:  # the first time at once; a database that throws us out is not to be besieged
            await asyncio.sleep(min(_pause_s(deadline.losses - 2), deadline.left_s()))
        tries = 0
        while True:
            if self._closed:
                raise StoreError(f"{self.database} is not open: the store was stopped.")
            try:
                left_s = max(deadline.left_s(), 0.05)
                async with asyncio.timeout(left_s):
                    self._connection = await connect(self.url, self._wait_ms, left_s)
            except (*FAILURES, ValueError) as error:
                pause_s = _pause_s(tries)
                self._outage.began(deadline.began_s)
                deadline.cause = deadline.cause if isinstance(error, TimeoutError) else error
                if not is_passing(error):
                    raise store_error(error, self.database, "connecting") from error
                if deadline.left_s() <= pause_s:
                    raise self._unreachable(error, deadline) from error
                await asyncio.sleep(pause_s)
                tries += 1
            else:
                return self._connection

    async def within(self, deadline: Deadline, work: Awaitable[T]) -> T:
        """Return the result of `work` on the connection.

        When it does not come in time, the connection is given up.

        Raises:
            TimeoutError: it did not come in time.
        """
        try:
            async with asyncio.timeout(deadline.left_s()):
                result = await work
        except (TimeoutError, asyncio.CancelledError) as error:
            self._outage.began(deadline.began_s)
            self.drop()
            if isinstance(error, TimeoutError):
                # Not the cause itself, which may say of its own statement that it never happened: of this one nothing
                # is known.
                raise TimeoutError(_too_late(deadline)) from deadline.cause or error
            raise
        except DRIVER_LOST as error:
            self._outage.began(deadline.began_s)
            self.drop()
            deadline.losses += 1
            raise ConnectionError(str(error)) from error
        except FAILURES as error:
            if is_lost(error):
                deadline.losses += 1
                deadline.cause = error
            if is_lost(error) or isinstance(store_error(error, self.database, ""), StoreUnavailable):
                self._outage.began(deadline.began_s)
            raise
        self._outage.is_over()
        return result

    def drop(self) -> None:
        """Give the connection up without waiting for the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=1)
            except FAILURES:
                connection.terminate()

    def _unreachable(self, error: BaseException, deadline: Deadline) -> BaseException:
        if isinstance(error, TimeoutError) and deadline.cause is not None:
            error = deadline.cause
        failure = store_error(error, self.database, "connecting")
        waited = f" Waited {deadline.wait_ms} ms for it."
        return StoreUnavailable(f"{failure.message}{waited}") if isinstance(failure, StoreUnavailable) else failure


class Readers:
    """A few connections for questions: each takes the one that was free last.

    Arguments:
        connections: at least one, of one outage; opened here.
    """

    def __init__(self, connections: list[ReconnectingConnection]) -> None:
        self._connections = connections
        self._free: asyncio.LifoQueue[ReconnectingConnection] = asyncio.LifoQueue()
        for reconnecting in connections:
            reconnecting.open()
            self._free.put_nowait(reconnecting)

    async def ask(
        self, question: Callable[[Connection], Awaitable[T]], doing: str = "reading", *, repeat: bool = True
    ) -> T:
        """Put a question, again when the connection is lost before the answer came.

        It is put once when not `repeat`.

        Raises:
            StoreError: as it is.
        """
        deadline = self._connections[0].deadline()
        try:
            async with asyncio.timeout(deadline.left_s()):
                reconnecting = await self._free.get()
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._connections[0].database}: no answer in {deadline.wait_ms} ms.") from error
        try:
            return await _ask(reconnecting, question, deadline, doing, repeat=repeat)
        finally:
            self._free.put_nowait(reconnecting)

    async def close(self) -> None:
        """Close for good."""
        for reconnecting in self._connections:
            await reconnecting.close()


def _too_late(deadline: Deadline) -> str:
    if deadline.cause is None:
        return "no answer in time"
    return f"no answer in time; before that: {str(deadline.cause).rstrip('.') or type(deadline.cause).__name__}"


async def _ask(
    reconnecting: ReconnectingConnection,
    question: Callable[[Connection], Awaitable[T]],
    deadline: Deadline,
    doing: str,
    *,
    repeat: bool,
) -> T:
    while True:
        connection = await reconnecting.connected(deadline)
        try:
            return await reconnecting.within(deadline, question(connection))
        except FAILURES as error:
            if is_lost(error):
                reconnecting.drop()
            again = is_beaten(error) or (repeat and is_lost(error))
            if not again or deadline.left_s() == 0:
                raise store_error(error, reconnecting.database, doing) from error
