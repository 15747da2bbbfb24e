"""Cancelled, interrupted, deadlocked, killed from outside.

No message is lost, none is a ghost, and no caller hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tests.integration.client.banks import CHECK, Bank, BusinessHandle, off_the_loop
from tests.integration.client.ledgers import TRANSFER, MariadbLedger, PostgresLedger, mariadb_connection
from tests.servers.mariadb import lock_waits
from tests.support.recording_coordinator import RecordingCoordinator, Request
from twophase import AsyncClient, AsyncMessage, Message, Progress, Verdict
from twophase.errors import CommittedDespiteError, FunctionRefused, RolledBack, Undecided

RECEIVER = "http://bank-b/transfer-in"
ROUNDS = 300
TURNS_MAX = 1_000


def transfer_message(coordinator: RecordingCoordinator) -> Message:
    return Message(coordinator.url).add(RECEIVER, {"amount": 30})


@pytest.mark.kinds(where=lambda kind: kind.is_async)
async def test_cancelled_business_is_rolled_back_and_nothing_is_sent(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)
    working = asyncio.Event()

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        working.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(bank.transact(message, business))
    await working.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare"]
    assert message.state is Progress.UNDECIDED
    assert bank.ledger.check_back(message.gid).verdict is Verdict.ROLLED_BACK


@pytest.mark.kinds(where=lambda kind: kind.is_async)
async def test_cancellation_after_the_commit_lets_submit_finish_first(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)
    loop, submitting, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hold_submit(request: Request) -> None:
        if request.operation == "submit":
            loop.call_soon_threadsafe(submitting.set)
            go_on.wait(60)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)

    coordinator.before_answer = hold_submit
    task = asyncio.create_task(bank.transact(message, business))
    await submitting.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert message.submitted
    assert bank.ledger.balance() == 70


@pytest.mark.kinds(where=lambda kind: kind.is_async and kind.name.endswith("engine"))
async def test_timeout_around_a_transaction_rolls_it_back(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await bank.transact(transfer_message(coordinator), business)
    assert bank.ledger.balance() == 100


@pytest.mark.kinds(where=lambda kind: kind.is_async and kind.name.endswith(" engine") and kind.database != "sqlite")
async def test_joined_sessions_cancelled_at_random_keep_no_connection_and_hold_no_row(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    """A cancelled join leaves its session as SQLAlchemy leaves it, which frees it.

    Over aiosqlite 0.22.1, SQLAlchemy 2.1.9 does not. A session without a join keeps SQLite's lock until garbage is
    collected, when it is cancelled in a statement that returns rows. The how-to guide says so.
    """
    dice, requests = random.Random(20), set[int]()

    async def join_and_commit(own: AsyncClient) -> None:
        async with AsyncSession(bank.engine) as session, session.begin():
            await session.execute(text("update account set balance = balance where id = 'A'"))
            await own.message().add(RECEIVER, {}).join(session, CHECK)

    async with AsyncClient(coordinator.url) as own:
        for turn in range(ROUNDS):
            asked = len(coordinator.operations)
            task = asyncio.create_task(join_and_commit(own))
            while turn % 2 and len(coordinator.operations) == asked and not task.done():
                await asyncio.sleep(0)
            for _ in range(dice.randrange(TURNS_MAX)):
                await asyncio.sleep(0)
            for _ in range(2):
                task.cancel()
                for _ in range(dice.randrange(12)):
                    await asyncio.sleep(0)
            await asyncio.wait([task])
            requests.add(len(coordinator.operations) - asked)
        assert bank.engine.pool.checkedout() == 0
        await asyncio.wait_for(join_and_commit(own), 20)
    assert {0, 1} <= requests, "some were cancelled before prepare, some behind it"
    assert bank.ledger.run(TRANSFER) == []
    assert bank.ledger.balance() == 70


@pytest.mark.kinds(where=lambda kind: not kind.is_async)
async def test_interrupted_business_is_rolled_back_and_nothing_is_sent(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await bank.transact(message, business)
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare"]
    assert message.state is Progress.UNDECIDED


@pytest.mark.kinds(where=lambda kind: kind.database == "postgresql")
async def test_session_killed_by_an_administrator_is_rolled_back(bank: Bank, coordinator: RecordingCoordinator) -> None:
    ledger = bank.ledger
    assert isinstance(ledger, PostgresLedger)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        ledger.terminate_others()

    expected = Undecided if bank.kind.name in {"psycopg", "psycopg async", "asyncpg connection"} else RolledBack
    message = transfer_message(coordinator)
    with pytest.raises(expected):
        await bank.transact(message, business)
    assert ledger.balance() == 100
    assert coordinator.operations == (["prepare"] if expected is Undecided else ["prepare", "abort"])


@pytest.mark.kinds(where=lambda kind: kind.database == "mysql" and kind.name in {"mysql engine", "mysql async engine"})
async def test_deadlock_swallowed_by_the_application_never_commits_half(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    ledger = bank.ledger
    assert isinstance(ledger, MariadbLedger)
    victims = []

    with contextlib.closing(mariadb_connection(ledger.database)) as rival:
        rival_cursor = rival.cursor()
        # A rival with more changed rows than this transaction has: the database then picks this transaction as the
        # victim.
        rival_cursor.execute("insert into account values ('R1', 1), ('R2', 1), ('R3', 1), ('R4', 1), ('R5', 1)")
        rival_cursor.execute("update account set balance = balance + 1 where id = 'B'")
        waiting = threading.Thread(target=_run, args=(rival_cursor, "update account set balance = 0 where id = 'A'"))

        async def business(handle: BusinessHandle) -> None:
            await handle.execute(TRANSFER)
            waiting.start()
            _until_someone_waits(ledger)
            try:
                await handle.execute("update account set balance = balance + 30 where id = 'B'")
            except Exception as error:  # noqa: BLE001 -- what this application does wrong
                victims.append(error)
                waiting.join()
                rival.rollback()
                await handle.execute(TRANSFER)

        with pytest.raises(RolledBack):
            await bank.transact(transfer_message(coordinator), business)
    assert "1213" in str(victims[0])
    assert ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


def _run(cursor: object, statement: str) -> None:
    cursor.execute(statement)  # type: ignore[attr-defined]


def _until_someone_waits(ledger: MariadbLedger) -> None:
    pause = threading.Event()
    for _ in range(1_000):
        if lock_waits(ledger.run):
            return
        pause.wait(0.02)
    pytest.fail("nobody ever waited for a lock")


@pytest.mark.kinds(where=lambda kind: kind.database == "postgresql" and kind.name.endswith("engine"))
async def test_commit_that_the_database_refuses_is_rolled_back_and_aborted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    bank.ledger.run("create table if not exists parent (id int primary key)")
    bank.ledger.run("create table if not exists child (id int references parent (id) deferrable initially deferred)")

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.execute("insert into child values (1)")

    with pytest.raises(Exception, match="foreign key"):
        await bank.transact(transfer_message(coordinator), business)
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


@pytest.mark.kinds(where=lambda kind: kind.name in {"sqlite engine", "postgresql engine", "mysql engine"})
async def test_savepoint_inside_the_block_is_fine(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        with contextlib.suppress(ValueError), handle.handle.begin_nested():
            handle.handle.execute(text(TRANSFER))
            raise ValueError

    await bank.transact(transfer_message(coordinator), business)
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


@pytest.mark.kinds(where=lambda kind: kind.name in {"sqlite engine", "postgresql engine", "mysql engine"})
async def test_rollback_inside_the_block_leaves_nothing_behind(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        handle.handle.rollback()
        await handle.execute(TRANSFER)

    with pytest.raises((RolledBack, CommittedDespiteError)) as raised:
        await bank.transact(transfer_message(coordinator), business)
    assert raised.type is RolledBack
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


@pytest.mark.kinds(where=lambda kind: kind.name in {"sqlite engine", "sqlite async engine"})
async def test_do_and_submit_returns_what_the_function_returns(bank: Bank, coordinator: RecordingCoordinator) -> None:
    if bank.kind.is_async:

        async def abusiness(connection: object) -> int:
            await BusinessHandle(connection).execute(TRANSFER)
            return 17

        message = AsyncMessage(coordinator.url).add(RECEIVER, {"amount": 30})
        assert await message.do_and_submit(bank.engine, abusiness, CHECK) == 17
    else:

        def business(connection: object) -> int:
            connection.execute(text(TRANSFER))  # type: ignore[attr-defined]
            return 17

        with off_the_loop():
            assert transfer_message(coordinator).do_and_submit(bank.engine, business, CHECK) == 17
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


async def _pay_later(connection: object) -> None:
    await BusinessHandle(connection).execute(TRANSFER)


@pytest.mark.kinds(where=lambda kind: kind.name == "sqlite engine")
@pytest.mark.parametrize(
    ("business", "sent"),
    [
        (_pay_later, []),
        (lambda connection: _pay_later(connection), ["prepare", "abort"]),  # noqa: PLW0108 -- hides that it is async
    ],
    ids=["async", "lambda"],
)
def test_do_and_submit_never_commits_without_the_business(
    bank: Bank, coordinator: RecordingCoordinator, business: Callable[[object], object], sent: list[str]
) -> None:
    message = transfer_message(coordinator)
    with pytest.raises(FunctionRefused, match=r"`AsyncMessage\.do_and_submit`"):
        message.do_and_submit(bank.engine, business, CHECK)
    assert (coordinator.operations, bank.ledger.balance()) == (sent, 100)
    assert message.state is (Progress.ROLLED_BACK if sent else Progress.NEW)


@pytest.mark.kinds(where=lambda kind: kind.name == "sqlite async engine")
async def test_async_do_and_submit_commits_nothing_unawaited(bank: Bank, coordinator: RecordingCoordinator) -> None:
    message = AsyncMessage(coordinator.url).add(RECEIVER, {"amount": 30})
    with pytest.raises(FunctionRefused, match=r"`Message\.do_and_submit`"):
        await message.do_and_submit(bank.engine, lambda _: 17, CHECK)  # type: ignore[arg-type,return-value]
    assert (message.state, coordinator.operations) == (Progress.ROLLED_BACK, ["prepare", "abort"])


SIGNALLED = pytest.mark.kinds(where=lambda kind: not kind.is_async and kind.database == "sqlite")


class SoftTimeLimit(Exception):
    """The exception that a job queue's worker raises in a signal's handler."""


@SIGNALLED
@pytest.mark.parametrize("operation", ["prepare", "submit", "abort"])
async def test_a_time_limit_that_a_signal_raises_tells_the_truth_about_the_commit(
    bank: Bank, coordinator: RecordingCoordinator, operation: str
) -> None:
    def raise_it(*_: object) -> None:
        raise SoftTimeLimit

    def signal_while_it_waits(request: Request) -> None:
        if request.operation == operation:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        if operation == "abort":
            raise ZeroDivisionError

    before = signal.signal(signal.SIGUSR1, raise_it)
    coordinator.before_answer = signal_while_it_waits
    message = transfer_message(coordinator)
    try:
        with pytest.raises(CommittedDespiteError if operation == "submit" else SoftTimeLimit):
            await bank.transact(message, business)
    finally:
        signal.signal(signal.SIGUSR1, before)
    committed = bank.ledger.check_back(message.gid).verdict is Verdict.COMMITTED
    assert committed is (operation == "submit")
    assert bank.ledger.balance() == (70 if committed else 100)
