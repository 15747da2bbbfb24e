"""Perform a flow's commands on asyncio.

This module takes no decision; `flow` takes them all.

Cancellation (decision 5): before COMMIT, the transaction is rolled back within a bound, and the cancellation
continues. Once COMMIT is sent, the rest of the flow, submit included, runs to its end first. Only then does the
cancellation continue.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from twophase.barrier.asking import acheck_back
from twophase.barrier.beside import Block
from twophase.barrier.open import aopen_transaction, ask_engine, asked_again, identity_source, require_idle
from twophase.barrier.producer import read_identity
from twophase.barrier.shelter import settle
from twophase.barrier.transaction import aperform
from twophase.client.flow import (
    AskBarrier,
    Begin,
    Business,
    Close,
    Command,
    Commit,
    DistrustIdentity,
    Flush,
    ReadIdentity,
    Rollback,
    Rule,
)
from twophase.client.transport.exchange import Pause, Send
from twophase.core.errors import TwophaseError

if TYPE_CHECKING:
    from twophase.barrier.transaction import AsyncTransaction
    from twophase.client.identity import Identities
    from twophase.client.transport.wire import AsyncTransport

log = logging.getLogger("twophase.client")

END_SECONDS_MAX = 5.0


async def _nothing() -> None:
    """Do nothing: without a session there is nothing to flush."""


class AsyncDriver:
    """Runs one flow: up to the business, and from there to its end."""

    def __init__(
        self, flow: Generator[Command, Any, Any], transport: AsyncTransport, identities: Identities, engine: Any = None
    ) -> None:
        """Nothing happens yet; arguments as `sync.SyncDriver`."""
        self._flow = flow
        self._result: Any = None
        self._transport = transport
        self._identities = identities
        self._engine = engine
        self._transaction: AsyncTransaction | None = None
        self._block: Block | None = None
        self._cancelled: asyncio.CancelledError | None = None
        self._sheltered = False
        """True when the rest of the flow runs in its own task.

        The application cannot cancel that task.
        """

    async def start(self) -> Any:
        """Run up to the business, and return the handle that it works on.

        Returns None when the flow ended before.
        """
        try:
            command = self._advance(None)
            while command is not None and type(command) is not Business:
                command = await self._step(command)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._let_cancellation_through(error)
            if isinstance(error, TwophaseError):
                raise error.with_traceback(None)  # noqa: B904 -- the flow's frames would bury the message
            raise
        if self._transaction is None:
            return None
        if "sqlalchemy" in sys.modules or "django.db" in sys.modules:  # `watched`, without a call
            self._block = Block(self._transaction.handle)
        return self._transaction.handle

    async def run(self) -> Any:
        """Run a flow without a business to its end, and return its result."""
        await self.start()
        return self._result

    async def finish(self, seen: BaseException | None) -> None:
        """Run from the business to the end; what it raises replaces `seen`."""
        outside = None if self._block is None else self._block.end(seen)
        try:
            await self._finish(seen if outside is None else outside)
        except TwophaseError as error:
            raise error.with_traceback(None)  # noqa: B904 -- as in `start`
        if outside is not None:
            raise outside  # rolled back, as if the block had raised it

    async def _finish(self, seen: BaseException | None) -> None:
        command = self._advance(seen)
        while command is not None:
            if type(command) is Commit:
                self._sheltered = True
                settled = await settle(self._run_from(command))
                self._cancelled = self._cancelled or settled.cancelled
                self._let_cancellation_through(settled.task.exception())
                settled.task.result()
                return
            command = await self._step(command)
        self._let_cancellation_through(None)

    async def _run_from(self, first: Command) -> None:
        command: Command | None = first
        while command is not None:
            command = await self._step(command)

    def _let_cancellation_through(self, cause: BaseException | None) -> None:
        if self._cancelled is not None:
            raise self._cancelled from cause

    def _advance(self, result: Any) -> Command | None:
        try:
            return self._flow.send(result)
        except StopIteration as stop:
            self._result = stop.value
            return None

    async def _step(self, command: Command) -> Command | None:
        try:
            if type(command) is Send:
                # Each request passes here, and a coroutine less is a microsecond less.
                result: Any = await self._transport.send(command.operation, command.body, command.timeout_ms)
            else:
                result = await self._perform(command)
        except BaseException as error:  # noqa: BLE001 -- thrown into the flow, which decides
            try:
                return self._flow.throw(error)
            except StopIteration as stop:
                self._result = stop.value
                return None
        return self._advance(result)

    async def _perform(self, command: Command) -> Any:
        match command:
            case Rule(steps):
                return await aperform(steps, self._open)
            case Flush():
                # Only sessions have something to flush.
                return await getattr(self._open.handle, "flush", _nothing)()
            case Commit(last):
                return await self._open.commit(last)
            case Close():
                return await self._end("giving the connection back", self._open.close())
            case Begin():
                self._transaction = await aopen_transaction(self._engine)
                return self._transaction.dialect
            case ReadIdentity(table, allow_unsafe):
                return await self._identity(table, allow_unsafe=allow_unsafe)
            case DistrustIdentity(table):
                return self._identities.distrust(ask_engine(self._engine), table)
            case Rollback():
                return await self._end("rollback", self._open.rollback())
            case AskBarrier(gid, prepared_at_ms, identity, table):
                self._let_cancellation_through(None)
                engine = asked_again(self._engine)
                return await acheck_back(engine, gid, prepared_at_ms=prepared_at_ms, identity=identity, table=table)
            case Pause(pause_ms):
                return await asyncio.sleep(pause_ms / 1000)
            case Business() | Send():  # pragma: no cover
                raise AssertionError("not performed here")

    @property
    def _open(self) -> AsyncTransaction:
        assert self._transaction is not None, "begin comes first"
        return self._transaction

    async def _identity(self, table: str, *, allow_unsafe: bool) -> str:
        require_idle(self._engine)
        engine = ask_engine(self._engine)
        known = self._identities.get(engine, table)
        if known is not None:
            return known
        transaction = await aopen_transaction(identity_source(self._engine))
        try:
            identity: str = await aperform(
                read_identity(transaction.dialect, table, allow_unsafe=allow_unsafe), transaction
            )
        finally:
            await self._end("rollback", transaction.rollback())
            await self._end("giving the connection back", transaction.close())
        self._let_cancellation_through(None)
        self._identities.remember(engine, table, identity)
        return identity

    async def _end(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do work that gives a connection back.

        It never fails, and a cancellation does not cut it off.
        """
        if self._sheltered:
            await self._end_sheltered(what, work)
            return
        settled = await settle(work, END_SECONDS_MAX)
        self._cancelled = self._cancelled or settled.cancelled
        if settled.task.cancelled():
            log.warning("%s took longer than %s s and was abandoned", what, END_SECONDS_MAX)
        elif settled.task.exception() is not None:
            # The outcome does not depend on this: the barrier is asked next, or the transaction has ended.
            log.warning("%s failed", what, exc_info=settled.task.exception())

    async def _end_sheltered(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do the same work as `_end`, without another task.

        The flow is in its own task already; another one would cost more than the work.
        """
        try:
            async with asyncio.timeout(END_SECONDS_MAX):
                await work
        except TimeoutError:
            log.warning("%s took longer than %s s and was abandoned", what, END_SECONDS_MAX)
        except asyncio.CancelledError as error:  # the loop ends, and with it every task
            self._cancelled = self._cancelled or error
        except Exception:
            log.warning("%s failed", what, exc_info=True)
