"""The asyncio driver after COMMIT was sent.

The return of the connection may hang or fail; the rest is done anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from twophase.barrier.dialect import SQLITE
from twophase.client import aio, flow
from twophase.client.identity import Identities
from twophase.client.transport.exchange import Send
from twophase.client.transport.wire import HttpAnswer, Operation

SUBMIT = Send(Operation.SUBMIT, b"{}", 1_000)


class Connection:
    """A transaction whose end is scripted."""

    dialect = SQLITE
    handle = None

    def __init__(self, close: Callable[[], Awaitable[Any]]) -> None:
        self.close: Any = close

    async def execute(self, statement: object) -> list[Any]:
        raise AssertionError(statement)

    async def commit(self, last: object = None) -> None:
        """Commit; nothing is to do."""

    async def rollback(self) -> None:
        raise AssertionError("it has committed")


class Coordinator:
    """A transport that notes what was sent."""

    def __init__(self) -> None:
        self.sent: list[Operation] = []

    async def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        self.sent.append(operation)
        return HttpAnswer(200, b"{}")

    async def close(self) -> None:
        """Do nothing: no connection is open."""


def sequence() -> Generator[flow.Command, Any, None]:
    yield flow.Commit(None)
    yield flow.Close()
    yield SUBMIT


def driver_of(coordinator: Coordinator, close: Callable[[], Awaitable[Any]]) -> aio.AsyncDriver:
    driver = aio.AsyncDriver(sequence(), coordinator, Identities())
    driver._transaction = Connection(close)
    return driver


async def test_a_connection_that_hangs_is_given_up_and_submit_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aio, "END_SECONDS_MAX", 0.01)
    coordinator = Coordinator()
    await driver_of(coordinator, lambda: asyncio.Event().wait()).finish(None)
    assert coordinator.sent == [Operation.SUBMIT]
    assert "giving the connection back took longer than 0.01 s and was abandoned" in caplog.text


async def test_a_connection_that_cannot_be_given_back_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("cut")

    coordinator = Coordinator()
    await driver_of(coordinator, fail).finish(None)
    assert coordinator.sent == [Operation.SUBMIT]
    assert "giving the connection back failed" in caplog.text


async def test_a_cancellation_meanwhile_comes_when_all_is_done() -> None:
    closing, closed = asyncio.Event(), asyncio.Event()

    async def close() -> None:
        closing.set()
        await closed.wait()

    coordinator = Coordinator()
    finishing = asyncio.create_task(driver_of(coordinator, close).finish(None))
    await closing.wait()
    for _ in range(2):  # an impatient caller cancels twice
        finishing.cancel()
        await asyncio.sleep(0)
    assert not finishing.done()
    closed.set()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert coordinator.sent == [Operation.SUBMIT]


async def test_an_ending_loop_cancels_everything_and_submit_is_still_sent() -> None:
    closing = asyncio.Event()

    async def close() -> None:
        closing.set()
        await asyncio.Event().wait()

    coordinator = Coordinator()
    finishing = asyncio.create_task(driver_of(coordinator, close).finish(None))
    await closing.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as `asyncio.run` does at its end
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert coordinator.sent == [Operation.SUBMIT]


async def test_a_cancellation_during_the_rollback_of_a_failed_start_is_let_through() -> None:
    rolling_back, may_end = asyncio.Event(), asyncio.Event()

    async def roll_back() -> None:
        rolling_back.set()
        await may_end.wait()

    def failing() -> Generator[flow.Command, Any, None]:
        yield flow.Rollback()
        raise LookupError

    driver = aio.AsyncDriver(failing(), Coordinator(), Identities())
    connection: Any = Connection(roll_back)
    connection.rollback = roll_back
    driver._transaction = connection
    starting = asyncio.create_task(driver.start())
    await rolling_back.wait()
    starting.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError) as raised:
        await starting
    assert isinstance(raised.value.__cause__, LookupError)
