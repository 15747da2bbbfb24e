"""The `with` and the `async with` around a local transaction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from twophase.barrier.open import is_async
from twophase.core.errors import UnsupportedEngine

if TYPE_CHECKING:
    from twophase.client.aio import AsyncDriver
    from twophase.client.sync import SyncDriver

H_co = TypeVar("H_co", covariant=True)


class Transaction(Protocol[H_co]):
    """A local transaction of a blocking engine.

    `with` gives the object that the application executes its statements on.
    """

    def __enter__(self) -> H_co:
        """Prepare, begin, write the barrier row; the business runs next.

        Raises: see `Message.transaction`.
        """
        ...

    def __exit__(
        self, kind: type[BaseException] | None, seen: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        """Commit and submit, or roll back and let the barrier decide.

        Raises: see `Message.transaction`.
        """
        ...


class AsyncTransaction(Protocol[H_co]):
    """`Transaction` of an async engine, for `async with`."""

    async def __aenter__(self) -> H_co:
        """`Transaction.__enter__`, awaited."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, seen: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        """`Transaction.__exit__`, awaited."""
        ...


class LocalTransaction:
    """A transaction that is entered once.

    It is entered with `with` or `async with`, as its engine requires.
    """

    __slots__ = ("_adriver", "_driver", "_engine", "_is_entered", "_make_adriver", "_make_driver")

    def __init__(
        self, engine: Any, make_driver: Callable[[], SyncDriver], make_adriver: Callable[[], AsyncDriver]
    ) -> None:
        """Nothing happens yet."""
        self._engine = engine
        self._make_driver = make_driver
        self._make_adriver = make_adriver
        self._driver: SyncDriver | None = None
        self._adriver: AsyncDriver | None = None
        self._is_entered = False

    def __del__(self) -> None:
        """Warn of a transaction that was made and never entered.

        Its statements, if any, ran without the message.
        """
        if not self._is_entered:
            warnings.warn(
                "a message's transaction was never entered, so nothing was sent; write `with message.transaction(…)`, "
                "or `async with` with an async engine.",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __enter__(self) -> Any:
        """Prepare, begin, write the barrier row; the business runs next.

        Raises: see `Message.transaction`.
        """
        self._is_entered = True
        if is_async(self._engine):
            raise UnsupportedEngine("This is an async engine: write `async with message.transaction(…)`.")
        driver = self._make_driver()
        handle = driver.start()  # refused when entered again; the first one is still to be ended
        self._driver = driver
        return handle

    def __exit__(
        self, kind: type[BaseException] | None, seen: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Commit and submit, or roll back and let the barrier decide.

        Raises: see `Message.transaction`.
        """
        assert self._driver is not None, "entered before"
        self._driver.finish(seen)
        return False

    async def __aenter__(self) -> Any:
        """`__enter__` for an async engine."""
        self._is_entered = True
        if not is_async(self._engine):
            raise UnsupportedEngine(
                "This is not an async engine: write `with Message(…).transaction(…)`, in a thread if need be, "
                "or give an AsyncEngine, AsyncConnection or AsyncSession of SQLAlchemy, asyncpg's Pool or Connection, "
                "psycopg 3's AsyncConnection or aiosqlite's Connection."
            )
        driver = self._make_adriver()
        handle = await driver.start()
        self._adriver = driver
        return handle

    async def __aexit__(
        self, kind: type[BaseException] | None, seen: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """`__exit__` for an async engine."""
        assert self._adriver is not None, "entered before"
        await self._adriver.finish(seen)
        return False
