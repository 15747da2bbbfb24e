"""How a connection is opened, and the proof that what it acknowledges is durable (correctness rule 8).

A connection comes back by itself: `Lane` opens it when it is needed, gives it to one caller at a time, and opens
another when it was lost, within the bound that a request may wait for the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from twophase.core.errors import ConfigurationError, StoreError, StoreUnavailable, UnsafeDurability
from twophase.stores.postgres.failures import FAILURES, is_beaten, is_lost, is_passing, store_error

T = TypeVar("T")
Connection = Any
"""asyncpg's, which has no types."""

POSTGRES_OLDEST = 130_000
CONNECT_TIMEOUT_S = 3.0

_SETTINGS: Final = {
    "application_name": "twophase",
    # A plan is made once, maybe over empty tables, and must be right when they are large: always by an index.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
_PAUSE_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
_UNSAFE: Final = {"fsync": "off", "synchronous_commit": "off"}


def named(url: str) -> str:
    """The database of a URL as it may be written into a log: host, port and name, never the password.

    >>> named("postgresql://me:secret@db1:5433/twophase?sslmode=require")
    'postgresql://db1:5433/twophase'
    """
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def connect(url: str) -> Connection:
    """Open a connection and see that it is a PostgreSQL whose commits are durable.

    Raises:
        UnsafeDurability: fsync or synchronous_commit is off.
        ConfigurationError: too old, or not to be understood.
        asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError: as they come.
    """
    connection: Connection = await asyncpg.connect(  # type: ignore[no-untyped-call]
        url,
        timeout=CONNECT_TIMEOUT_S,
        server_settings=_SETTINGS,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
    )
    try:
        await check_durability(connection, named(url))
    except BaseException:
        connection.terminate()
        raise
    return connection


async def check_durability(connection: Connection, place: str) -> None:
    """Raise `UnsafeDurability` unless a commit on this connection is on disk when it returns."""
    row = await connection.fetchrow(
        "select current_setting('server_version_num')::integer, current_setting('fsync'),"
        " current_setting('synchronous_commit')"
    )
    version, *values = row
    if version < POSTGRES_OLDEST:
        raise ConfigurationError(f"{place}: PostgreSQL {version // 10_000} is too old; 13 or newer is needed.")
    for (name, unsafe), value in zip(_UNSAFE.items(), values, strict=True):
        if value == unsafe:
            raise UnsafeDurability(f"{place}: {name} is {value}, so a commit may be forgotten; set it to on.")


class Deadline:
    """When a caller has waited long enough for the database."""

    def __init__(self, wait_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + wait_ms / 1000
        self.wait_ms = wait_ms

    def left_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self._at - self._loop.time())


class Lane:
    """One connection for one caller at a time.

    Arguments:
        url: the database.
        wait_ms: how long a caller waits for a database that is away.
    """

    def __init__(self, url: str, wait_ms: int) -> None:
        self.url = url
        self.place = named(url)
        self.lock = asyncio.Lock()
        self._wait_ms = wait_ms
        self._connection: Connection | None = None
        self._closed = False

    def open(self) -> None:
        """Let it connect, also after `close`."""
        self._closed = False

    def deadline(self) -> Deadline:
        """A new bound for one call."""
        return Deadline(self._wait_ms)

    async def connected(self, deadline: Deadline) -> Connection:
        """The connection, opened anew when it was lost; the caller holds the lock.

        Raises:
            StoreUnavailable: not before the deadline.
            StoreError, ConfigurationError: waiting will not help.
        """
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self.drop()
        tries = 0
        while True:
            if self._closed:
                raise StoreError(f"{self.place} is not open: the store was stopped.")
            try:
                async with asyncio.timeout(max(deadline.left_s(), 0.05)):
                    self._connection = await connect(self.url)
            except (*FAILURES, ValueError) as error:
                pause_s = _PAUSE_S[min(tries, len(_PAUSE_S) - 1)]
                if not is_passing(error):
                    raise store_error(error, self.place, "connecting") from error
                if deadline.left_s() <= pause_s:
                    raise self._unreachable(error, deadline) from error
                await asyncio.sleep(pause_s)
                tries += 1
            else:
                return self._connection

    async def within(self, deadline: Deadline, work: Awaitable[T]) -> T:
        """The result of `work` on the connection. When it does not come in time, the connection is given up.

        Raises:
            TimeoutError: it did not come in time.
        """
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await work
        except (TimeoutError, asyncio.CancelledError):
            self.drop()
            raise

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
        failure = store_error(error, self.place, "connecting")
        waited = f" Waited {deadline.wait_ms} ms for it."
        return StoreUnavailable(f"{failure.message}{waited}") if isinstance(failure, StoreUnavailable) else failure


class Readers:
    """A few lanes for questions: each takes the one that was free last.

    Arguments:
        lanes: at least one; opened here.
    """

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = lanes
        self._free: asyncio.LifoQueue[Lane] = asyncio.LifoQueue()
        for lane in lanes:
            lane.open()
            self._free.put_nowait(lane)

    async def ask(self, question: Callable[[Connection], Awaitable[T]], doing: str = "reading") -> T:
        """Put a question, again when the connection is lost before the answer came.

        Raises:
            StoreError: as it is.
        """
        deadline = self._lanes[0].deadline()
        try:
            async with asyncio.timeout(deadline.left_s()):
                lane = await self._free.get()
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._lanes[0].place}: no answer in {deadline.wait_ms} ms.") from error
        try:
            return await _ask(lane, question, deadline, doing)
        finally:
            self._free.put_nowait(lane)

    async def close(self) -> None:
        """Close for good."""
        for lane in self._lanes:
            await lane.close()


async def _ask(lane: Lane, question: Callable[[Connection], Awaitable[T]], deadline: Deadline, doing: str) -> T:
    while True:
        connection = await lane.connected(deadline)
        try:
            return await lane.within(deadline, question(connection))
        except FAILURES as error:
            if is_lost(error):
                lane.drop()
            if not (is_lost(error) or is_beaten(error)) or deadline.left_s() == 0:
                raise store_error(error, lane.place, doing) from error
