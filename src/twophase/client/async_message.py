"""`AsyncMessage`: a `Message` for asyncio, with the same methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, overload

from twophase.barrier.effect import await_end
from twophase.client import flow, manual
from twophase.client.base_client import achannel_of
from twophase.client.channel import AsyncChannel
from twophase.client.joined import join_async, refuse_until_awaited
from twophase.client.message import BaseMessage
from twophase.client.transaction import LocalTransaction
from twophase.core.errors import UnsupportedEngine

if TYPE_CHECKING:
    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, H
    from twophase.client.aio import AsyncDriver
    from twophase.client.transaction import AsyncTransaction

T = TypeVar("T")


class AsyncMessage(BaseMessage[AsyncChannel]):
    """A set of branches, called if and only if the local transaction commits.

    The transaction is one of an async engine.

    >>> message = AsyncMessage("http://localhost:36789").add("http://bank-b/transfer-in", {"amount": 30})
    >>> message.state
    <Progress.NEW: 'new'>

    One object names one message and is used once: for one `transaction`, `do_and_submit` or `join`, or manually
    with `prepare`, `submit` and `abort`. It is not for several tasks at a time.
    """

    _kind = AsyncChannel
    _takes = "AsyncClient"

    @overload
    def transaction(
        self, engine: Asyncpg, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> AsyncTransaction[AsyncpgHandle]: ...
    @overload
    def transaction(
        self,
        engine: Asynchronous[H],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> AsyncTransaction[H]: ...
    def transaction(
        self, engine: Any, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> Any:
        """`Message.transaction` for `async with`; raises the same.

        Arguments:
            engine: a SQLAlchemy AsyncEngine, idle AsyncConnection or AsyncSession, asyncpg's Pool or Connection, or an
                idle connection of psycopg or aiosqlite. This library begins and commits.
            check, table, foreign_check: as `Message.transaction`.
        """

        def driver() -> Never:
            raise UnsupportedEngine("An AsyncMessage takes an async engine; a Message takes this one.")

        def adriver() -> AsyncDriver:
            channel = achannel_of(self._server)
            context = self._context(channel, table, foreign_check)
            return channel.driver(flow.transaction(context, self._check(channel, check)), engine)

        return LocalTransaction(engine, driver, adriver)

    @overload
    async def do_and_submit(
        self,
        engine: Asyncpg,
        function: Callable[[AsyncpgHandle], Awaitable[T]],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> T: ...
    @overload
    async def do_and_submit(
        self,
        engine: Asynchronous[H],
        function: Callable[[H], Awaitable[T]],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> T: ...
    async def do_and_submit(
        self,
        engine: Any,
        function: Callable[[Any], Awaitable[T]],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> T:
        """`Message.do_and_submit` for an async engine; `function` is an `async def`."""
        async with self.transaction(engine, check, table=table, foreign_check=foreign_check) as connection:
            return await await_end(function(connection), "Message.do_and_submit")

    def join(
        self, session: Any, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> Coroutine[Any, Any, Self]:
        """`Message.join` for an AsyncSession, awaited; raises the same.

        Until it is awaited, the Session's commit is refused (FunctionRefused): it would commit without the message.
        """
        return self._join(refuse_until_awaited(session, self.gid), session, check, table, foreign_check)

    async def _join(
        self,
        awaited: Callable[[], None],
        session: Any,
        check: str | None,
        table: str | None,
        foreign_check: bool,  # noqa: FBT001 -- handed on
    ) -> Self:
        awaited()
        channel = achannel_of(self._server)
        context = self._context(channel, table, foreign_check)
        await join_async(context, self._check(channel, check), session, channel.transport, channel.identities)
        return self

    async def prepare(self, check: str | None = None, *, foreign_check: bool = False) -> Self:
        """`Message.prepare` for asyncio; raises the same."""
        channel = achannel_of(self._server)
        address = self._check(channel, check)
        await channel.driver(
            manual.prepare(self._context(channel), address, explicit_verdict=not foreign_check)
        ).start()
        return self

    async def submit(self) -> Self:
        """`Message.submit` for asyncio; raises the same."""
        channel = achannel_of(self._server)
        await channel.driver(manual.submit(self._context(channel))).start()
        return self

    async def abort(self) -> Self:
        """`Message.abort` for asyncio; raises the same."""
        channel = achannel_of(self._server)
        await channel.driver(manual.abort(self._context(channel))).start()
        return self
