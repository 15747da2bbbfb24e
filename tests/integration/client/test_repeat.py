"""A request that a service repeats under its own gid.

The error names the state of the first request.
"""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import scoped_session

from tests.integration.client.banks import CHECK, Bank, BusinessHandle, off_the_loop
from tests.integration.client.ledgers import TRANSFER
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncClient, AsyncMessage, Message, Progress, State, Verdict
from twophase.barrier import install
from twophase.errors import (
    CheckBackCameFirst,
    CommittedDespiteError,
    ContentConflict,
    Fate,
    RolledBack,
    StateConflict,
    Undecided,
)
from twophase.testing import InProcessCoordinator

NOWHERE = "http://127.0.0.1:1"
KEY = "order-1"
SESSIONS = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" session"))
BLOCKING_SESSIONS = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" session") and not kind.is_async)


class Overdrawn(Exception):
    """A refusal by the business code."""


class Orders:
    """A producer whose orders carry a key from the caller, which is the gid."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.connection = sqlite3.connect(path)
        install(self.connection)
        self.connection.execute("create table orders(pieces integer)")

    def order(self, key: str, pieces: int = 2, fails: BaseException | None = None) -> None:
        message = Message(self.url, key).add(f"{NOWHERE}/reserve", {"pieces": pieces})
        with message.transaction(self.connection, check=f"{NOWHERE}/check") as connection:
            connection.execute("insert into orders values (?)", (pieces,))
            if isinstance(fails, SystemExit):
                connection.commit()  # the process ends between commit and submit
            if fails is not None:
                raise fails

    def pieces(self) -> list[int]:
        return [pieces for (pieces,) in self.connection.execute("select pieces from orders")]


@pytest.fixture(params=["http", "grpc"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Orders]:
    with InProcessCoordinator(grpc_port=0) as coordinator:
        url = coordinator.url if request.param == "http" else coordinator.grpc_url
        one = Orders(url, tmp_path / "orders.db")
        with contextlib.closing(one.connection):
            yield one


def test_a_repeat_of_what_was_submitted_names_the_state_and_runs_nothing(orders: Orders) -> None:
    orders.order("key-1")
    with pytest.raises(StateConflict) as refused:
        orders.order("key-1")

    error = refused.value
    assert (error.state, error.fate, orders.pieces()) == (State.SUBMITTED, Fate.NOT_STARTED, [2])
    assert "prepare is refused: the message is submitted" in error.message
    assert "FAILURE" not in str(error)


def test_a_repeat_of_what_was_rolled_back_says_so(orders: Orders) -> None:
    with pytest.raises(Overdrawn):
        orders.order("key-1", fails=Overdrawn())
    with pytest.raises(StateConflict) as refused:
        orders.order("key-1")
    assert (refused.value.state, refused.value.fate, orders.pieces()) == (State.FAILED, Fate.NOT_STARTED, [])


def test_another_order_under_the_same_key_was_not_started(orders: Orders) -> None:
    Message(orders.url, "key-1").add(f"{NOWHERE}/reserve", {"pieces": 2}).prepare(f"{NOWHERE}/check")
    with pytest.raises(ContentConflict) as refused:
        orders.order("key-1", pieces=3)
    assert (refused.value.state, refused.value.fate, orders.pieces()) == (State.PREPARED, Fate.NOT_STARTED, [])
    assert "FAILURE" not in str(refused.value)


def test_a_repeat_of_what_committed_without_its_submit_is_committed_once(orders: Orders) -> None:
    with pytest.raises(SystemExit):
        orders.order("key-1", fails=SystemExit())
    with pytest.raises(CommittedDespiteError):
        orders.order("key-1")
    assert orders.pieces() == [2]


async def transfer(handle: BusinessHandle) -> None:
    await handle.execute(TRANSFER)


async def run(bank: Bank, statement: str) -> None:
    await BusinessHandle(bank.engine).execute(statement)


async def order(bank: Bank, coordinator: RecordingCoordinator) -> Message:
    """Send the order in a transaction that the library runs."""
    message = Message(coordinator.url, KEY).add(NOWHERE)
    await bank.transact(message, transfer)
    return message


class Joining:
    """The same order in a transaction of the application's Session."""

    def __init__(self, bank: Bank, coordinator: RecordingCoordinator) -> None:
        self.bank = bank
        self.coordinator = coordinator
        self.message: Message | AsyncMessage

    async def join(self, session: Any = None) -> None:
        session = self.bank.engine if session is None else session
        if self.bank.kind.is_async:
            async with AsyncClient(self.coordinator.url) as client:
                message = self.message = client.message(KEY).add(NOWHERE)
                await message.join(session, CHECK)
        else:
            blocking = self.message = Message(self.coordinator.url, KEY).add(NOWHERE)
            with off_the_loop():
                blocking.join(session, CHECK)


def all_words(raised: pytest.ExceptionInfo[BaseException]) -> str:
    return "".join(traceback.format_exception(raised.value))


async def test_a_repeated_transaction_after_a_commit_is_told_that_it_is_committed(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    await order(bank, coordinator)
    coordinator.requests.clear()
    with pytest.raises(CommittedDespiteError) as raised:
        await order(bank, coordinator)
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]
    assert "The coordinator asked" not in all_words(raised)
    assert "new message" not in all_words(raised)


@SESSIONS
async def test_a_repeated_join_after_a_commit_is_told_that_it_is_committed(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    await order(bank, coordinator)
    coordinator.requests.clear()
    joining = Joining(bank, coordinator)
    await run(bank, TRANSFER)
    with pytest.raises(CommittedDespiteError) as raised:
        await joining.join()
    assert raised.value.fate is Fate.COMMITTED
    assert coordinator.operations == ["prepare", "submit"]
    assert joining.message.state is Progress.SUBMITTED
    assert "The coordinator asked" not in all_words(raised)
    assert "new message" not in all_words(raised)

    await BusinessHandle(bank.engine).commit()  # of a caller that goes on although it was told
    assert bank.ledger.balance() == 70


@BLOCKING_SESSIONS
async def test_a_repeated_join_of_a_scoped_session_is_told_that_it_is_committed(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    await order(bank, coordinator)
    session_of_request: Callable[[], Any] = lambda: bank.engine  # noqa: E731 -- stands for a sessionmaker
    with pytest.raises(CommittedDespiteError):
        await Joining(bank, coordinator).join(scoped_session(session_of_request))  # type: ignore[arg-type]
    assert bank.ledger.balance() == 70


@SESSIONS
async def test_a_join_that_the_check_back_has_barred_leaves_the_session_open(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    assert bank.ledger.check_back(KEY).verdict is Verdict.ROLLED_BACK
    joining = Joining(bank, coordinator)
    await run(bank, TRANSFER)
    with pytest.raises(CheckBackCameFirst, match="The coordinator asked before") as raised:
        await joining.join()
    assert raised.value.fate is Fate.ROLLED_BACK
    assert coordinator.operations == ["prepare"]
    assert joining.message.state is Progress.ROLLED_BACK

    await BusinessHandle(bank.engine).commit()
    assert bank.ledger.balance() == 70


@SESSIONS
async def test_a_repeated_join_that_nobody_can_judge_is_undecided(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    await order(bank, coordinator)
    bank.ledger.run("update barrier set reason = 'odd'")
    coordinator.requests.clear()
    joining = Joining(bank, coordinator)
    with pytest.raises(Undecided) as raised:
        await joining.join()
    assert coordinator.operations == ["prepare"]
    assert joining.message.state is Progress.UNDECIDED
    assert "The coordinator asked" not in all_words(raised)
    assert bank.ledger.balance() == 70


@SESSIONS
async def test_two_messages_of_one_gid_in_one_session_are_both_rolled_back(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    first, second = Joining(bank, coordinator), Joining(bank, coordinator)
    await run(bank, TRANSFER)
    await first.join()
    with pytest.raises(RolledBack, match="had the barrier row"):
        await second.join()
    assert first.message.state is second.message.state is Progress.ROLLED_BACK
    assert set(coordinator.operations) == {"prepare", "abort"}

    await BusinessHandle(bank.engine).commit()
    assert bank.ledger.balance() == 100
    assert bank.ledger.barrier() == [(KEY, "rollback")]


@SESSIONS
async def test_a_join_whose_row_meets_an_error_does_not_say_that_nothing_will_be_delivered(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    class ConnectionBroke(Exception):
        """The driver's error."""

    def break_at_the_row(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "insert into" in statement:
            raise ConnectionBroke

    await order(bank, coordinator)
    session = bank.engine.sync_session if bank.kind.is_async else bank.engine
    event.listen(session.get_bind(), "before_cursor_execute", break_at_the_row)
    joining = Joining(bank, coordinator)
    with pytest.raises(ConnectionBroke):
        await joining.join()
    assert joining.message.state is Progress.UNDECIDED
