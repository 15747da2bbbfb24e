"""Perform a flow's commands with blocking calls.

This module takes no decision; `flow` takes them all.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from twophase.barrier.asking import check_back
from twophase.barrier.open import ask_engine, open_transaction
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
    Flow,
    Flush,
    ReadIdentity,
    Rollback,
    Rule,
)
from twophase.client.identity import require_idle
from twophase.client.transport.exchange import FlowRuntime, Pause, Send
from twophase.core.errors import TwophaseError

if TYPE_CHECKING:
    from twophase.barrier.transaction import SyncTransaction
    from twophase.client.identity import Identities
    from twophase.client.transport.wire import Transport


def _nothing() -> None:
    """Do nothing: without a session there is nothing to flush."""


T = TypeVar("T")

log = logging.getLogger("twophase.client")

SURROUNDINGS = FlowRuntime(
    wall_ms=lambda: time.time_ns() // 1_000_000,
    monotonic_ms=lambda: time.monotonic() * 1000,
    random_bytes=os.urandom,
    chance=random.random,
)


class SyncDriver:
    """Runs one flow: up to the business, and from there to its end."""

    def __init__(self, flow: Flow, transport: Transport, identities: Identities, engine: Any = None) -> None:
        """Nothing happens yet.

        Arguments:
            flow: what to do.
            transport: the way to the coordinator.
            identities: of databases known already.
            engine: what the local transaction is opened on; None for flows without one.
        """
        self._flow: Generator[Command, Any, Any] = flow
        self._result: Any = None
        self._transport = transport
        self._identities = identities
        self._engine = engine
        self._transaction: SyncTransaction | None = None

    def start(self) -> Any:
        """Run up to the business, and return the handle that it works on.

        Returns None when the flow ended before.
        """
        try:
            command = self._advance(None)
            while command is not None and type(command) is not Business:
                command = self._step(command)
        except TwophaseError as error:
            raise error.with_traceback(None)  # noqa: B904 -- the flow's frames would bury the message
        return None if self._transaction is None else self._transaction.handle

    def finish(self, seen: BaseException | None) -> None:
        """Run from the business to the end; what it raises replaces `seen`."""
        try:
            command = self._advance(seen)
            while command is not None:
                command = self._step(command)
        except TwophaseError as error:
            raise error.with_traceback(None)  # noqa: B904 -- as in `start`

    def play(self, flow: Generator[Command, Any, T]) -> T:
        """Run a flow without a business to its end, and return its result.

        It runs on the transaction of the flow before.
        """
        self._flow = flow
        self.start()
        return cast("T", self._result)

    def _advance(self, result: Any) -> Command | None:
        try:
            return self._flow.send(result)
        except StopIteration as stop:
            self._result = stop.value
            return None

    def _step(self, command: Command) -> Command | None:
        try:
            result = self._perform(command)
        except BaseException as error:  # noqa: BLE001 -- thrown into the flow, which decides
            try:
                return self._flow.throw(error)
            except StopIteration as stop:
                self._result = stop.value
                return None
        return self._advance(result)

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
                self._transaction = self._begin()
                return self._transaction.dialect
            case ReadIdentity(table, allow_unsafe):
                return self._identity(table, allow_unsafe=allow_unsafe)
            case DistrustIdentity(table):
                return self._identities.distrust(ask_engine(self._engine), table)
            case Rollback():
                return self._rollback()
            case AskBarrier(gid, prepared_at_ms, identity, table):
                engine = ask_engine(self._engine)
                return check_back(engine, gid, prepared_at_ms=prepared_at_ms, identity=identity, table=table)
            case Pause(pause_ms):
                return self._pause(pause_ms / 1000)
            case Business():  # pragma: no cover
                raise AssertionError("the business is not performed here")

    @property
    def _open(self) -> SyncTransaction:
        assert self._transaction is not None, "begin comes first"
        return self._transaction

    def _begin(self) -> SyncTransaction:
        return open_transaction(self._engine)

    def _flush(self) -> None:
        getattr(self._open.handle, "flush", _nothing)()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _identity(self, table: str, *, allow_unsafe: bool) -> str:
        require_idle(self._engine)
        engine = ask_engine(self._engine)
        known = self._identities.get(engine, table)
        if known is not None:
            return known
        transaction = open_transaction(engine)
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
