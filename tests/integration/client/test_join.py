"""A message inside a Session's own transaction.

Its fate is the Session's, and the outermost commit is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.integration.client.banks import CHECK, Bank
from tests.integration.client.cutting_proxy import Cut, CuttingProxy
from tests.integration.client.ledgers import TRANSFER, WRONG_STATEMENT, PostgresLedger
from tests.support.one_try import one_try
from tests.support.recording_coordinator import CUT, RecordingCoordinator, Request
from tests.support.waiting import until
from twophase import AsyncClient, AsyncMessage, Client, Message, Progress
from twophase.barrier import aonce, once
from twophase.errors import (
    BranchesLost,
    CommittedDespiteError,
    DatabaseSwitched,
    OpenTransaction,
    RolledBack,
    TransactionLost,
    UnsupportedEngine,
)

SYNC = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
ASYNC = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and kind.is_async)
POSTGRES = pytest.mark.kinds(where=lambda kind: kind.name == "postgresql engine")


def transfer_message(coordinator: RecordingCoordinator, *, is_open: bool = False) -> Message:
    return Message(coordinator.url, allow_late_branches=is_open).add("http://bank-b/transfer-in", {"amount": 30})


@SYNC
def test_message_is_submitted_after_the_session_s_commit(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session:
        session.execute(text(TRANSFER))
        message = transfer_message(coordinator).join(session, CHECK)
        assert coordinator.operations == ["prepare"]
        session.commit()
    assert bank.ledger.balance() == 70
    assert bank.ledger.barrier() == [(message.gid, "msg")]
    assert coordinator.operations == ["prepare", "submit"]
    assert message.submitted


@SYNC
def test_message_is_aborted_after_the_session_s_rollback(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session:
        session.execute(text(TRANSFER))
        message = transfer_message(coordinator).join(session, CHECK)
        session.rollback()
    assert bank.ledger.balance() == 100
    assert bank.ledger.barrier() == [(message.gid, "rollback")]
    assert coordinator.operations == ["prepare", "abort"]
    assert message.state is Progress.ROLLED_BACK


@SYNC
def test_closing_the_session_without_a_commit_aborts(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session:
        session.execute(text(TRANSFER))
        transfer_message(coordinator).join(session, CHECK)
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


@SYNC
def test_error_inside_a_begin_block_aborts_and_propagates(bank: Bank, coordinator: RecordingCoordinator) -> None:
    def business() -> None:
        with Session(bank.engine) as session, session.begin():
            transfer_message(coordinator).join(session, CHECK)
            session.execute(text(WRONG_STATEMENT))

    with pytest.raises(IntegrityError):
        business()
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


@SYNC
def test_error_of_another_message_decides_nothing_about_a_joined_one(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    for error in (DatabaseSwitched(gid="another"), TransactionLost()):
        message = transfer_message(coordinator)

        def business(message: Message = message, error: Exception = error) -> None:
            with Session(bank.engine) as session, session.begin():
                message.join(session, CHECK)
                raise error

        with pytest.raises(type(error)) as raised:
            business()
        assert raised.value is error
        assert message.state is Progress.ROLLED_BACK
        assert (message.gid, "rollback") in bank.ledger.barrier()
    assert coordinator.operations == ["prepare", "abort"] * 2


@SYNC
def test_savepoints_after_joining_do_not_end_it(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session, session.begin():
        transfer_message(coordinator).join(session, CHECK)
        with session.begin_nested():
            session.execute(text(TRANSFER))
        assert coordinator.operations == ["prepare"]
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


@SYNC
def test_rollback_after_a_released_savepoint_aborts(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session:
        message = transfer_message(coordinator).join(session, CHECK)
        with session.begin_nested():
            session.execute(text(TRANSFER))
        session.rollback()
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]
    assert message.state is Progress.ROLLED_BACK


@SYNC
def test_session_serves_message_after_message(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session:
        for _ in range(2):
            transfer_message(coordinator).join(session, CHECK)
            session.execute(text(TRANSFER))
            session.commit()
    assert bank.ledger.balance() == 40
    assert coordinator.operations == ["prepare", "submit"] * 2


@SYNC
def test_two_messages_share_one_transaction(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session, session.begin():
        messages = [transfer_message(coordinator).join(session, CHECK) for _ in range(2)]
        session.execute(text(TRANSFER))
    assert all(message.submitted for message in messages)
    assert len(bank.ledger.barrier()) == 2


@ASYNC
async def test_a_submit_that_is_cancelled_leaves_no_other_message_undecided(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    asked, released = threading.Event(), threading.Event()

    def hold_submit(request: Request) -> None:
        if request.operation == "submit":
            asked.set()
            released.wait(30)

    coordinator.before_answer = hold_submit
    messages = [AsyncMessage(coordinator.url).add("http://bank-b/transfer-in") for _ in range(2)]

    async def business() -> None:
        async with AsyncSession(bank.engine) as session, session.begin():
            for message in messages:
                await message.join(session, CHECK)
            await session.execute(text(TRANSFER))

    task = asyncio.create_task(business())
    await until(asked.is_set)
    task.cancel()
    await asyncio.wait([task])
    released.set()
    assert task.cancelled()
    assert [message.state for message in messages] == [Progress.COMMITTED] * 2
    assert bank.ledger.balance() == 70


def call_of(gid: str) -> dict[str, str]:
    """Return a coordinator's call of a branch."""
    return {"gid": gid, "branch_id": "01", "op": "action", "trans_type": "msg"}


@SYNC
def test_a_branch_and_its_own_message_share_one_transaction(bank: Bank, coordinator: RecordingCoordinator) -> None:
    messages: list[Message] = []

    def effect(session: Session) -> None:
        messages.append(transfer_message(coordinator).join(session, CHECK))
        session.execute(text(TRANSFER))
        if len(messages) == 1:
            raise ValueError("the first call fails")

    for _ in range(3):
        with Session(bank.engine) as session, contextlib.suppress(ValueError):
            once(session, call_of("g"), effect)
    assert bank.ledger.balance() == 70
    assert [message.state for message in messages] == [Progress.ROLLED_BACK, Progress.SUBMITTED]
    assert coordinator.operations == ["prepare", "abort", "prepare", "submit"]


@ASYNC
async def test_an_async_branch_and_its_own_message_share_one_transaction(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    messages: list[AsyncMessage] = []

    async def effect(session: AsyncSession) -> None:
        messages.append(await AsyncMessage(coordinator.url).add("http://bank-b/transfer-in").join(session, CHECK))
        await session.execute(text(TRANSFER))
        if len(messages) == 1:
            raise ValueError("the first call fails")

    for _ in range(3):
        async with AsyncSession(bank.engine) as session:
            with contextlib.suppress(ValueError):
                await aonce(session, call_of("g"), effect)
    assert bank.ledger.balance() == 70
    assert [message.state for message in messages] == [Progress.ROLLED_BACK, Progress.SUBMITTED]
    assert coordinator.operations == ["prepare", "abort", "prepare", "submit"]


@SYNC
def test_branches_added_before_the_commit_are_in_the_row(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session, session.begin():
        message = transfer_message(coordinator, is_open=True).join(session, CHECK)
        message.add("http://mailer/receipt")
    ((body,),) = bank.ledger.run("select body from barrier")
    assert body is not None
    assert len(coordinator.last("submit")["steps"]) == 2


@SYNC
def test_an_open_message_whose_joined_transaction_ends_before_its_commit_is_not_submitted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator, is_open=True)

    def business() -> None:
        with Session(bank.engine) as session:
            message.join(session, CHECK).add("http://mailer/receipt")
            session.execute(text(TRANSFER))
            session.connection().exec_driver_sql("commit")
            with pytest.raises(TransactionLost):
                session.commit()
            session.rollback()

    with pytest.raises(BranchesLost):
        business()
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare"]
    assert bank.ledger.check_back(message.gid).branches_lost


@SYNC
def test_unreachable_submit_leaves_the_commit_alone(bank: Bank, coordinator: RecordingCoordinator) -> None:
    coordinator.tell("submit", CUT)
    impatient = one_try(Client(coordinator.url))
    with Session(bank.engine) as session, session.begin():
        message = impatient.message().add("http://bank-b/transfer-in").join(session, CHECK)
        session.execute(text(TRANSFER))
    assert bank.ledger.balance() == 70
    assert message.state is Progress.COMMITTED


@POSTGRES
def test_commit_is_refused_when_the_row_is_gone(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session:
        session.execute(text(TRANSFER))
        message = transfer_message(coordinator).join(session, CHECK)
        session.execute(text("delete from barrier"))
        with pytest.raises(TransactionLost):
            session.commit()
        with pytest.raises(RolledBack):
            session.rollback()
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]
    assert message.state is Progress.ROLLED_BACK


@POSTGRES
def test_swallowed_statement_error_never_becomes_a_ghost(bank: Bank, coordinator: RecordingCoordinator) -> None:
    def business() -> None:
        with Session(bank.engine) as session, session.begin():
            transfer_message(coordinator).join(session, CHECK)
            session.execute(text(TRANSFER))
            with pytest.raises(IntegrityError):
                session.connection().execute(text(WRONG_STATEMENT))

    with pytest.raises(RolledBack):
        business()
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


@POSTGRES
def test_commit_whose_reply_is_lost_is_submitted_and_reported(
    bank_behind_proxy: Bank, proxy: CuttingProxy, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)

    def business() -> None:
        with Session(bank_behind_proxy.engine) as session, session.begin():
            message.join(session, CHECK)
            session.execute(text(TRANSFER))
            proxy.arm(Cut.BEFORE_REPLY)

    with pytest.raises(CommittedDespiteError):
        business()
    assert bank_behind_proxy.ledger.balance() == 70
    assert message.submitted


@pytest.mark.kinds(where=lambda kind: kind.name == "postgresql async engine")
async def test_async_commit_whose_reply_is_lost_is_not_called_a_rollback(
    bank_behind_proxy: Bank, proxy: CuttingProxy, coordinator: RecordingCoordinator
) -> None:
    """SQLAlchemy ends the transaction behind the error, which is not known then."""

    async def business() -> None:
        async with AsyncSession(bank_behind_proxy.engine) as session:
            await AsyncMessage(coordinator.url).add("http://bank-b/transfer-in").join(session, CHECK)
            await session.execute(text(TRANSFER))
            proxy.arm(Cut.BEFORE_REPLY)
            await session.commit()

    with pytest.raises(CommittedDespiteError, match="commit ended in an error"):
        await business()
    assert bank_behind_proxy.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


@SYNC
def test_an_error_of_a_listener_behind_the_commit_is_not_taken_for_a_rollback(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)

    def fail(_: object) -> None:
        raise ZeroDivisionError

    def business() -> None:
        with Session(bank.engine) as session:
            message.join(session, CHECK)
            event.listen(session, "after_commit", fail)
            session.execute(text(TRANSFER))
            session.commit()

    with pytest.raises(CommittedDespiteError, match="ZeroDivisionError was raised"):
        business()
    assert bank.ledger.balance() == 70
    assert message.submitted


@POSTGRES
def test_session_on_a_connection_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with bank.engine.connect() as connection, Session(connection) as session, pytest.raises(OpenTransaction):
        transfer_message(coordinator).join(session, CHECK)
    assert coordinator.operations == []


@POSTGRES
def test_session_inside_a_savepoint_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with Session(bank.engine) as session, session.begin_nested(), pytest.raises(OpenTransaction):
        transfer_message(coordinator).join(session, CHECK)


@POSTGRES
def test_engine_cannot_be_joined(bank: Bank, coordinator: RecordingCoordinator) -> None:
    assert isinstance(bank.ledger, PostgresLedger)
    with pytest.raises(UnsupportedEngine):
        transfer_message(coordinator).join(bank.engine, CHECK)


@ASYNC
async def test_message_is_submitted_after_the_async_session_s_commit(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async with AsyncClient(coordinator.url) as own, AsyncSession(bank.engine) as session:
        await session.execute(text(TRANSFER))
        message = await own.message().add("http://bank-b/transfer-in").join(session, CHECK)
        await session.commit()
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]
    assert message.submitted


@ASYNC
async def test_message_is_aborted_after_the_async_session_s_rollback(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business() -> None:
        async with AsyncSession(bank.engine) as session, session.begin():
            await session.execute(text(TRANSFER))
            await AsyncMessage(coordinator.url).add("http://bank-b/transfer-in", {"amount": 30}).join(session, CHECK)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await business()
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


async def test_sync_session_cannot_be_joined_asynchronously(coordinator: RecordingCoordinator) -> None:
    message = AsyncMessage(coordinator.url).add("http://bank-b/transfer-in", {"amount": 30})
    with pytest.raises(UnsupportedEngine):
        await message.join(create_async_engine("sqlite+aiosqlite://"), CHECK)


IDLE_BOUND = text("select @@session.wait_timeout")


@pytest.mark.kinds(where=lambda kind: kind.name == "mysql engine")
@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
def test_the_pool_gets_its_connection_back_with_its_own_settings(
    bank: Bank, coordinator: RecordingCoordinator, ending: str
) -> None:
    """With the bound of a transaction, the server would end idle ones.

    The pool may keep a connection for longer than the five minutes of that bound.
    """
    with bank.engine.connect() as connection:
        before = connection.scalar(IDLE_BOUND)
    with Session(bank.engine) as session:
        transfer_message(coordinator).join(session, CHECK)
        transfer_message(coordinator).join(session, CHECK)
        assert session.scalar(IDLE_BOUND) < before
        getattr(session, ending)()
    with bank.engine.connect() as connection:
        assert connection.scalar(IDLE_BOUND) == before


@pytest.mark.kinds(where=lambda kind: kind.name == "mysql async engine")
async def test_an_async_pool_gets_its_connection_back_with_its_own_settings(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async with bank.engine.connect() as connection:
        before = await connection.scalar(IDLE_BOUND)
    async with AsyncSession(bank.engine) as session:
        message = AsyncMessage(coordinator.url).add("http://bank-b/transfer-in", {"amount": 30})
        await message.join(session, CHECK)
        await session.commit()
    async with bank.engine.connect() as connection:
        assert await connection.scalar(IDLE_BOUND) == before


@pytest.mark.kinds(where=lambda kind: kind.name == "mysql engine")
def test_a_block_that_ends_the_session_s_transaction_gives_the_connection_back_as_it_was(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    with bank.engine.connect() as connection:
        before = connection.scalar(IDLE_BOUND)
    found: list[int] = []

    def business() -> None:
        with Session(bank.engine) as session, transfer_message(coordinator).transaction(session, check=CHECK):
            session.commit()
            with bank.engine.connect() as connection:
                found.append(connection.scalar(IDLE_BOUND))

    with pytest.raises(CommittedDespiteError):
        business()
    assert found == [before]
