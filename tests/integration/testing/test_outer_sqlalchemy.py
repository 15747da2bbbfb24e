"""Tests inside one transaction that is rolled back, with SQLAlchemy.

The engine is its Connection, the Connection's engine, or a Session on it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.support.business_databases import Bank
from tests.support.one_try import one_try
from tests.support.recording_coordinator import CUT, RecordingCoordinator
from twophase import Client, Message
from twophase.barrier.asking import acheck_back, check_back
from twophase.barrier.branch import once
from twophase.barrier.open import open_transaction
from twophase.core.errors import CheckBackCameFirst, CommittedDespiteError, OpenTransaction, UnsupportedEngine
from twophase.core.message import decode_branches
from twophase.core.verdict import Verdict
from twophase.testing import outer_transaction

CHECK = "http://bank-a/twophase/check"
SPEND = text("update account set balance = balance - 30 where id = 'A'")
TOO_MUCH = text("update account set balance = balance - 300 where id = 'A'")
WAYS = ("engine", "connection", "session")


@pytest.fixture
def connection(bank: Bank) -> Iterator[Connection]:
    """A connection in the transaction of a test.

    Afterwards nothing of the test's work may be left.
    """
    with bank.engine() as engine, engine.connect() as connection:
        transaction = connection.begin()
        with outer_transaction(connection):
            yield connection
        transaction.rollback()
    assert (bank.query("select balance from account"), bank.query("select gid from barrier")) == ([(100,)], [])


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, connection: Connection) -> Any:
    """The engine that the application is given."""
    session = sessionmaker(bind=connection, join_transaction_mode="create_savepoint")
    made: dict[str, Callable[[], Any]] = {
        "engine": lambda: connection.engine,
        "connection": lambda: connection,
        "session": session,
    }
    return made[request.param]()


def new_message(coordinator: RecordingCoordinator) -> Message:
    return Message(coordinator.url).add("http://bank-b/in", {"amount": 30})


def balance(connection: Connection) -> int:
    found: int = connection.execute(text("select balance from account")).scalar_one()
    return found


def reasons(connection: Connection, gid: str) -> list[str]:
    rows = connection.execute(text("select reason from barrier where gid = :gid"), {"gid": gid})
    return [row[0] for row in rows]


def test_what_ends_well_is_submitted_and_the_check_back_says_committed(
    way: Any, connection: Connection, coordinator: RecordingCoordinator
) -> None:
    message = new_message(coordinator)
    with message.transaction(way, check=CHECK) as handle:
        handle.execute(SPEND)

    assert message.submitted
    assert coordinator.operations == ["prepare", "submit"]
    assert (balance(connection), reasons(connection, message.gid)) == (70, ["msg"])
    assert check_back(way, message.gid).verdict is Verdict.COMMITTED
    assert connection.in_transaction()


def test_branches_added_to_an_open_message_are_in_its_row(
    way: Any, connection: Connection, coordinator: RecordingCoordinator
) -> None:
    message = Message(coordinator.url, allow_late_branches=True)
    with message.transaction(way, check=CHECK):
        message.add("http://bank-b/in", {"amount": 30})

    answer = check_back(way, message.gid)
    assert answer.verdict is Verdict.COMMITTED
    assert [branch.url for branch in decode_branches(answer.body or b"")] == ["http://bank-b/in"]


def test_what_fails_is_rolled_back_alone_and_aborted(
    way: Any, connection: Connection, coordinator: RecordingCoordinator
) -> None:
    connection.execute(text("insert into account values ('B', 5)"))
    message = new_message(coordinator)
    with pytest.raises(DBAPIError):
        message.do_and_submit(way, lambda handle: (handle.execute(SPEND), handle.execute(TOO_MUCH)), CHECK)

    assert coordinator.operations == ["prepare", "abort"]
    assert connection.execute(text("select sum(balance) from account")).scalar_one() == 105
    assert reasons(connection, message.gid) == ["rollback"]
    assert check_back(way, message.gid).verdict is Verdict.ROLLED_BACK


def test_a_check_back_that_comes_first_bars_the_transaction(
    way: Any, connection: Connection, coordinator: RecordingCoordinator
) -> None:
    message = new_message(coordinator)
    assert check_back(way, message.gid).verdict is Verdict.ROLLED_BACK
    with pytest.raises(CheckBackCameFirst), message.transaction(way, check=CHECK):
        raise AssertionError("not reached")

    assert (balance(connection), coordinator.operations) == (100, ["prepare", "abort"])


@pytest.mark.mariadb
def test_mariadb_and_a_scoped_session_do_the_same(banks: dict[str, Bank], coordinator: RecordingCoordinator) -> None:
    with banks["mysql"].engine() as engine, engine.connect() as connection, connection.begin() as transaction:
        factory = sessionmaker(bind=connection, join_transaction_mode="create_savepoint")
        session = scoped_session(factory)
        with outer_transaction(connection):
            for business in (SPEND, TOO_MUCH):
                message = new_message(coordinator)
                with contextlib.suppress(DBAPIError), message.transaction(session, check=CHECK) as handle:
                    handle.execute(business)
                expected = Verdict.COMMITTED if business is SPEND else Verdict.ROLLED_BACK
                assert check_back(session, message.gid).verdict is expected
            assert balance(connection) == 70
        session.remove()
        transaction.rollback()
    assert coordinator.operations == ["prepare", "submit", "prepare", "abort"]
    assert (banks["mysql"].balance(), banks["mysql"].query("select gid from barrier")) == (100, [])


def test_messages_come_one_after_the_other(way: Any, connection: Connection, coordinator: RecordingCoordinator) -> None:
    for _ in range(3):
        with new_message(coordinator).transaction(way, check=CHECK) as handle:
            handle.execute(SPEND)

    assert (balance(connection), coordinator.operations) == (10, ["prepare", "submit"] * 3)


def test_a_submit_that_gets_lost_is_found_by_the_check_back(
    connection: Connection, coordinator: RecordingCoordinator
) -> None:
    coordinator.tell("submit", CUT)
    message = one_try(Client(coordinator.url)).message().add("http://bank-b/in", {"amount": 30})
    with message.transaction(connection.engine, check=CHECK) as handle:
        handle.execute(SPEND)

    assert not message.submitted
    assert check_back(connection.engine, message.gid).verdict is Verdict.COMMITTED


def test_a_commit_of_everything_inside_the_block_is_noticed(bank: Bank, coordinator: RecordingCoordinator) -> None:
    """It ends the test's own transaction, and would end the message's in production."""
    message = new_message(coordinator)

    def work(connection: Connection) -> None:
        connection.execute(SPEND)
        connection.commit()

    with bank.engine() as engine, engine.connect() as connection:
        connection.begin()
        with outer_transaction(connection):
            with pytest.raises(CommittedDespiteError):
                message.do_and_submit(connection, work, CHECK)
            with pytest.raises(OpenTransaction, match="has ended"):
                open_transaction(connection)
    assert (coordinator.operations, bank.reasons(message.gid)) == (["prepare", "submit"], ["msg"])


def test_a_branch_takes_effect_once(way: Any, connection: Connection) -> None:
    call = {"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"}

    for _ in range(2):
        once(way, call, lambda handle: handle.execute(SPEND))

    assert balance(connection) == 70


def test_a_check_back_in_another_thread_waits_for_the_transaction_under_way(
    connection: Connection, coordinator: RecordingCoordinator
) -> None:
    message = new_message(coordinator)
    verdicts: list[Verdict] = []

    def ask() -> None:
        verdicts.append(check_back(connection.engine, message.gid, lock_timeout=0.02).verdict)

    with message.transaction(connection.engine, check=CHECK) as handle:
        handle.execute(SPEND)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        verdicts.append(check_back(connection.engine, message.gid, lock_timeout=0.02).verdict)

    assert verdicts == [Verdict.IN_PROGRESS, Verdict.IN_PROGRESS]
    assert message.submitted


def test_the_tests_own_session_may_have_read_when_the_application_takes_the_engine(
    connection: Connection, coordinator: RecordingCoordinator
) -> None:
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        session.execute(text("select balance from account"))
        message = new_message(coordinator)
        with message.transaction(connection.engine, check=CHECK) as handle:
            handle.execute(SPEND)
        assert check_back(connection.engine, message.gid).verdict is Verdict.COMMITTED


@pytest.mark.postgres
def test_a_check_back_leaves_the_settings_of_the_test_alone(banks: dict[str, Bank]) -> None:
    bank = banks["postgresql"]
    with bank.engine(isolation_level="REPEATABLE READ") as engine, engine.connect() as connection, connection.begin():
        connection.execute(SPEND)
        with outer_transaction(connection):
            assert check_back(engine, "g").verdict is Verdict.ROLLED_BACK
        assert connection.execute(text("show statement_timeout")).scalar_one() == "0"
        connection.rollback()


@pytest.mark.parametrize("mode", ["rollback_only", "control_fully", "conditional_savepoint"])
def test_a_session_that_could_not_roll_back_alone_is_refused(
    connection: Connection, coordinator: RecordingCoordinator, mode: Any
) -> None:
    with (
        Session(connection, join_transaction_mode=mode) as session,
        pytest.raises(OpenTransaction, match=mode) as refused,
        new_message(coordinator).transaction(session, check=CHECK),
    ):
        raise AssertionError("not reached")
    assert "create_savepoint" in str(refused.value)


def test_what_is_refused_in_production_is_refused_here(
    connection: Connection, coordinator: RecordingCoordinator
) -> None:
    """Three cases are refused.

    They are a Session that has read, a savepoint of the application's, and a transaction within another.
    """
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        session.execute(text("select 1"))
        with pytest.raises(OpenTransaction), new_message(coordinator).transaction(session, check=CHECK):
            raise AssertionError("not reached")
    with (
        connection.begin_nested(),
        pytest.raises(OpenTransaction),
        new_message(coordinator).transaction(connection, check=CHECK),
    ):
        raise AssertionError("not reached")
    assert coordinator.operations == []
    with new_message(coordinator).transaction(connection.engine, check=CHECK), pytest.raises(OpenTransaction):
        open_transaction(connection.engine)
    assert coordinator.operations == ["prepare", "submit"]


def test_a_session_is_not_joined(connection: Connection, coordinator: RecordingCoordinator) -> None:
    with (
        Session(connection, join_transaction_mode="create_savepoint") as session,
        pytest.raises(OpenTransaction, match="bound to a Connection"),
    ):
        new_message(coordinator).join(session, CHECK)


def test_outside_of_the_block_everything_is_refused_as_ever(bank: Bank) -> None:
    with bank.engine() as engine, engine.connect() as connection, connection.begin():
        with outer_transaction(connection):
            opened = open_transaction(connection)
            opened.rollback()
            opened.close()
        with pytest.raises(OpenTransaction):
            open_transaction(connection)


def test_other_connections_are_not_concerned(bank: Bank, connection: Connection) -> None:
    with bank.engine() as engine, engine.connect() as other:
        opened = open_transaction(other)
        assert type(opened).__name__ == "ConnectionTransaction"
        opened.rollback()
        opened.close()


def test_without_a_transaction_to_roll_back_it_is_refused(bank: Bank) -> None:
    with bank.engine() as engine, engine.connect() as connection:
        with pytest.raises(OpenTransaction, match="no transaction"), outer_transaction(connection):
            raise AssertionError("not reached")
        transaction = connection.begin()
        with outer_transaction(connection):
            transaction.rollback()
            with pytest.raises(OpenTransaction, match="has ended"):
                open_transaction(connection)
        with pytest.raises(UnsupportedEngine), outer_transaction(engine):
            raise AssertionError("not reached")


@pytest.mark.parametrize("kind", ["engine", "connection", "session"])
async def test_async_engines_do_the_same(bank: Bank, coordinator: RecordingCoordinator, kind: str) -> None:
    engine = create_async_engine(bank.url("aiosqlite" if bank.kind == "sqlite" else "asyncpg"))
    async with engine.connect() as connection:
        transaction = await connection.begin()
        with outer_transaction(connection):
            session = AsyncSession(bind=connection, join_transaction_mode="create_savepoint")
            way: Any = {"engine": engine, "connection": connection, "session": session}[kind]
            good, bad = new_message(coordinator), new_message(coordinator)
            async with good.transaction(way, check=CHECK) as handle:
                await handle.execute(SPEND)
            with pytest.raises(DBAPIError):
                async with bad.transaction(way, check=CHECK) as handle:
                    await handle.execute(TOO_MUCH)
            verdicts = [(await acheck_back(way, message.gid)).verdict for message in (good, bad)]
            found = (await connection.execute(text("select balance from account"))).scalar_one()
            await session.close()
        await transaction.rollback()
    await engine.dispose()

    assert (verdicts, found) == ([Verdict.COMMITTED, Verdict.ROLLED_BACK], 70)
    assert coordinator.operations == ["prepare", "submit", "prepare", "abort"]
    assert (bank.query("select balance from account"), bank.query("select gid from barrier")) == ([(100,)], [])
