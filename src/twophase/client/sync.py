"""Perform a flow's commands with blocking calls.

This module takes no decision; `flow` takes them all.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from twophase.barrier.asking import check_back
from twophase.barrier.beside import Block
from twophase.barrier.open import ask_engine, asked_again, identity_source, open_transaction, require_idle
from twophase.barrier.producer import read_identity
from twophase.barrier.transaction import perform
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
from twophase.client.transport.exchange import FlowRuntime, Pause, Send
from twophase.core.errors import TwophaseError

if TYPE_CHECKING:
    from twophase.barrier.transaction import SyncTransaction
    from twophase.client.identity import Identities
    from twophase.client.transport.wire import Transport


T = TypeVar("T")

log = logging.getLogger("twophase.client")

FLOW_RUNTIME = FlowRuntime(
    wall_ms=lambda: time.time_ns() // 1_000_000,
    monotonic_s=time.monotonic,
    random_bytes=os.urandom,
    chance=random.random,
)


class SyncDriver:
    """Runs one flow: up to the business, and from there to its end."""

    _open: SyncTransaction
    """The transaction, from `Begin` on."""

    def __init__(
        self, flow: Generator[Command, Any, Any], transport: Transport, identities: Identities, engine: Any = None
    ) -> None:
        """Nothing happens yet.

        Arguments:
            flow: what to do.
            transport: the way to the coordinator.
            identities: of databases known already.
            engine: what the local transaction is opened on; None for flows without one.
        """
        self._flow = flow
        self._result: Any = None
        self._transport = transport
        self._identities = identities
        self._engine = engine
        self._handle: Any = None
        self._block: Block | None = None

    def start(self) -> Any:
        """Run up to the business, and return the handle that it works on.

        Returns None when the flow ended before.
        """
        self._run(None)
        modules = sys.modules  # `watched`, without a call
        if self._handle is not None and ("sqlalchemy" in modules or "django.db" in modules):
            self._block = Block(self._handle)
        return self._handle

    def finish(self, seen: BaseException | None) -> None:
        """Run from the business to the end; what it raises replaces `seen`."""
        outside = None if self._block is None else self._block.end(seen)
        self._run(seen if outside is None else outside)
        if outside is not None:
            raise outside  # rolled back, as if the block had raised it

    def play(self, flow: Generator[Command, Any, T]) -> T:
        """Run a flow without a business to its end, and return its result.

        It runs on the transaction of the flow before.
        """
        self._flow = flow
        return cast("T", self.run())

    def run(self) -> Any:
        """Run a flow without a business to its end, and return its result."""
        self._run(None)
        return self._result

    def _run(self, result: Any) -> None:
        """Perform the flow's commands up to the business or the end.

        Arguments:
            result: of the command before.
        """
        flow, perform_command = self._flow, self._perform
        try:
            command = flow.send(result)
            while type(command) is not Business:
                try:
                    result = perform_command(command)
                except BaseException as error:  # noqa: BLE001 -- thrown into the flow, which decides
                    command = flow.throw(error)
                else:
                    command = flow.send(result)
        except StopIteration as stop:
            self._result = stop.value
        except TwophaseError as error:
            raise error.with_traceback(None)  # noqa: B904 -- the flow's frames would bury the message

    def _perform(self, command: Command) -> Any:
        match command:
            case Send(operation, body, timeout_ms):
                return self._transport.send(operation, body, timeout_ms)
            case Rule(steps):
                return perform(steps, self._open)
            case Flush():
                # Only sessions have something to flush.
                return self._flush()
            case Commit(last):
                return self._open.commit(last)
            case Close():
                return self._close()
            case Begin():
                transaction = self._open = self._begin()
                self._handle = transaction.handle
                return transaction.dialect
            case ReadIdentity(table, allow_unsafe):
                return self._identity(table, allow_unsafe=allow_unsafe)
            case DistrustIdentity(table):
                return self._identities.distrust(ask_engine(self._engine), table)
            case Rollback():
                return self._rollback()
            case AskBarrier(gid, prepared_at_ms, identity, table):
                engine = asked_again(self._engine)
                return check_back(engine, gid, prepared_at_ms=prepared_at_ms, identity=identity, table=table)
            case Pause(pause_ms):
                return self._pause(pause_ms / 1000)
            case Business():  # pragma: no cover
                raise AssertionError("the business is not performed here")

    def _begin(self) -> SyncTransaction:
        return open_transaction(self._engine)

    def _flush(self) -> None:
        flush = getattr(self._handle, "flush", None)
        if flush is not None:
            flush()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _identity(self, table: str, *, allow_unsafe: bool) -> str:
        require_idle(self._engine)
        engine = ask_engine(self._engine)
        known = self._identities.get(engine, table)
        if known is not None:
            return known
        transaction = open_transaction(identity_source(self._engine))
        try:
            identity: str = perform(read_identity(transaction.dialect, table, allow_unsafe=allow_unsafe), transaction)
        finally:
            transaction.rollback()
            transaction.close()
        self._identities.remember(engine, table, identity)
        return identity

    def _rollback(self) -> None:
        try:
            self._open.rollback()
        except Exception:
            log.warning("rollback failed", exc_info=True)

    def _close(self) -> None:
        try:
            self._open.close()
        except Exception:
            log.warning("giving the connection back failed", exc_info=True)
