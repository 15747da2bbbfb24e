"""Listeners between the block and COMMIT may spoil or widen the transaction.

The last look comes after them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, select, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from tests.integration.client.banks import CHECK, Bank, BusinessHandle
from tests.integration.client.ledgers import TRANSFER, WRONG_STATEMENT, Ledger, MariadbLedger, mariadb_connection
from tests.servers.mariadb import lock_waits
from tests.support.patient_locks import wait_for_locks
from tests.support.recording_coordinator import RecordingCoordinator
from tests.support.waiting import blocked_until
from twophase import AsyncClient, AsyncMessage, Message, Progress, Verdict
from twophase.barrier import check_back, once
from twophase.barrier.fault import code_of
from twophase.errors import RolledBack, TransactionLost, Undecided, UnsupportedEngine

SQLALCHEMY = ("engine", "connection", "session")
POSTGRES = pytest.mark.kinds(
    where=lambda kind: kind.database == "postgresql" and kind.name.endswith(SQLALCHEMY) and "asyncpg" not in kind.name
)
SESSIONS = pytest.mark.kinds(where=lambda kind: kind.database == "postgresql" and kind.name.endswith("session"))
MARIADB = pytest.mark.kinds(where=lambda kind: kind.name in ("mysql engine", "mysql async session"))
SQLITE_SESSION = pytest.mark.kinds(where=lambda kind: kind.name == "sqlite session")
SYNC = pytest.mark.kinds(where=lambda kind: kind.name == "postgresql engine")
ASYNC = pytest.mark.kinds(where=lambda kind: kind.name == "postgresql async engine")
SQLITE = pytest.mark.kinds(where=lambda kind: kind.name == "sqlite engine")
ENGINES = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
CALL = {"gid": "done-before", "branch_id": "01", "op": "action", "trans_type": "msg"}


def transfer_message(coordinator: RecordingCoordinator) -> Message:
    return Message(coordinator.url).add("http://bank-b/transfer-in", {"amount": 30})


async def transfer(handle: BusinessHandle) -> None:
    await handle.execute(TRANSFER)


def swallow_an_error(connection: Connection) -> None:
    """Write an audit row, and suppress its error so that the request does not break.

    PostgreSQL aborts the transaction, and its COMMIT does not report that.
    """
    with contextlib.suppress(DBAPIError):
        connection.execute(text(WRONG_STATEMENT))


def engine_of(bank: Bank) -> Engine:
    """Return the sync Engine below the bank's engine."""
    bind = bank.engine
    bind = getattr(bind, "sync_session", bind)
    if isinstance(bind, Session):
        bind = bind.get_bind()
    bind = getattr(bind, "sync_connection", None) or getattr(bind, "sync_engine", None) or bind
    engine: Engine = bind.engine
    return engine


def assert_rolled_back(ledger: Ledger, message: Message | AsyncMessage, coordinator: RecordingCoordinator) -> None:
    assert ledger.balance() == 100
    assert ledger.barrier() == [(message.gid, "rollback")]
    assert coordinator.operations == ["prepare", "abort"]
    assert message.state is Progress.ROLLED_BACK


@POSTGRES
async def test_a_commit_listener_that_spoils_the_transaction_is_never_a_ghost(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    event.listen(engine_of(bank), "commit", swallow_an_error)
    message = transfer_message(coordinator)
    with pytest.raises(Undecided) as raised:  # the listener spoils its own check-back too, which decides nothing
        await bank.transact(message, transfer)
    assert isinstance(raised.value.__cause__, TransactionLost)
    event.remove(engine_of(bank), "commit", swallow_an_error)
    assert coordinator.operations == ["prepare"]
    assert bank.ledger.balance() == 100
    assert bank.ledger.check_back(message.gid).verdict is Verdict.ROLLED_BACK
    await bank.transact(transfer_message(coordinator), transfer)
    assert bank.ledger.balance() == 70


@POSTGRES
async def test_a_commit_listener_that_does_no_harm_is_heard(bank: Bank, coordinator: RecordingCoordinator) -> None:
    heard: list[Connection] = []
    event.listen(engine_of(bank), "commit", heard.append)
    message = transfer_message(coordinator)
    await bank.transact(message, transfer)
    assert heard
    assert message.submitted
    assert bank.ledger.balance() == 70


@pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine"))
async def test_a_connection_that_leaves_its_pool_in_the_block_commits(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business(handle: BusinessHandle) -> None:
        (getattr(handle.handle, "sync_connection", None) or handle.handle).detach()
        await transfer(handle)

    message = transfer_message(coordinator)
    await bank.transact(message, business)
    assert message.submitted
    assert bank.ledger.balance() == 70


@POSTGRES
async def test_a_listener_that_answers_our_very_look_with_an_error_is_not_asked(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    def audit(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if "age(xmin)" in statement:
            swallow_an_error(connection)

    event.listen(engine_of(bank), "after_cursor_execute", audit)
    event.listen(engine_of(bank), "commit", lambda _: None)
    message = transfer_message(coordinator)
    await bank.transact(message, transfer)
    assert bank.ledger.balance() == 70
    assert message.submitted


@SESSIONS
async def test_a_session_s_listener_that_spoils_the_transaction_ends_in_a_rollback(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    session: Session = getattr(bank.engine, "sync_session", bank.engine)
    event.listen(session, "before_commit", lambda session: swallow_an_error(session.connection()))
    message = transfer_message(coordinator)
    with pytest.raises(RolledBack):
        await bank.transact(message, transfer)
    assert_rolled_back(bank.ledger, message, coordinator)


@SYNC
def test_a_scoped_session_s_listener_that_spoils_the_transaction_ends_in_a_rollback(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    session = scoped_session(sessionmaker(bank.engine))
    event.listen(session, "before_commit", lambda session: swallow_an_error(session.connection()))
    message = transfer_message(coordinator)
    with pytest.raises(RolledBack), message.transaction(session, CHECK):
        session.execute(text(TRANSFER))
    session.remove()
    assert_rolled_back(bank.ledger, message, coordinator)


@SYNC
def test_a_joined_session_s_later_listener_that_spoils_it_ends_in_a_rollback(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)

    def business() -> None:
        with Session(bank.engine) as session, session.begin():
            message.join(session, CHECK)
            session.execute(text(TRANSFER))
            event.listen(session.connection(), "commit", swallow_an_error)

    with pytest.raises(RolledBack):
        business()
    assert_rolled_back(bank.ledger, message, coordinator)


@SYNC
def test_a_branch_done_before_is_not_confirmed_by_a_commit_that_a_listener_spoils(bank: Bank) -> None:
    assert once(bank.engine, CALL, lambda _: "done") == "done"
    event.listen(bank.engine, "commit", swallow_an_error)
    with pytest.raises(DBAPIError):
        once(bank.engine, CALL, lambda _: "done")
    event.remove(bank.engine, "commit", swallow_an_error)
    assert once(bank.engine, CALL, lambda _: "done") is None


@ENGINES
async def test_a_check_back_speaks_no_verdict_whose_own_write_a_listener_rolls_back(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator)
    await bank.transact(message, transfer)

    def roll_back(connection: Connection) -> None:
        connection.connection.rollback()

    event.listen(bank.engine, "commit", roll_back)
    assert check_back(bank.engine, message.gid).verdict is Verdict.UNKNOWN
    event.remove(bank.engine, "commit", roll_back)
    assert check_back(bank.engine, message.gid).verdict is Verdict.COMMITTED


@contextlib.contextmanager
def another_waits_for_us(ledger: MariadbLedger) -> Iterator[Callable[[], None]]:
    """Let another transaction hold B, and change more rows.

    Entered and called, it waits for A, which this transaction holds.
    """
    connection = mariadb_connection(ledger.database)
    with connection.cursor() as cursor:
        cursor.execute("update account set balance = 1 where id = 'B'")
        cursor.executemany("insert into account values (%s, 0)", [(f"x{number}",) for number in range(100)])

        def wait_for_a() -> None:
            cursor.execute("update account set balance = 1 where id = 'A'")

        thread = threading.Thread(target=wait_for_a)

        def wait() -> None:
            thread.start()
            blocked_until(lambda: lock_waits(ledger.run), "the other transaction waits")

        yield wait
        thread.join(60)
        connection.rollback()
    connection.close()


@MARIADB
async def test_a_commit_listener_that_swallows_a_deadlock_ends_in_a_rollback(
    bank: Bank, coordinator: RecordingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(bank.ledger, MariadbLedger)
    wait_for_locks(monkeypatch, 2)  # the listener waits for B also inside the message's own check-back
    codes: list[str] = []

    def deadlock(connection: Connection) -> None:
        try:
            connection.execute(text("update account set balance = balance + 1 where id = 'B'"))
        except DBAPIError as error:
            codes.append(code_of(error))

    with another_waits_for_us(bank.ledger) as wait:

        async def business(handle: BusinessHandle) -> None:
            await handle.execute(TRANSFER)
            wait()
            event.listen(engine_of(bank), "commit", deadlock)

        message = transfer_message(coordinator)
        with pytest.raises(RolledBack):
            await bank.transact(message, business)
        event.remove(engine_of(bank), "commit", deadlock)
    assert codes[:1] == ["MySQL error 1213"]
    assert_rolled_back(bank.ledger, message, coordinator)


class Second:
    """Another database beside the bank's."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        with engine.begin() as connection:
            connection.execute(text("create table audit (text varchar(20))"))

    def write(self, session: Session) -> None:
        session.execute(text("insert into audit values ('transfer')"), bind_arguments={"bind": self.engine})

    def rows(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text("select count(*) from audit")).scalar_one())


@pytest.fixture
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Second]:
    """A second database.

    Its commit could fail after the bank's has succeeded, or the other way round.
    """
    engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('second')}/audit.db")
    yield Second(engine)
    engine.dispose()


@SQLITE_SESSION
async def test_a_session_with_two_databases_is_rolled_back_in_both(
    bank: Bank, coordinator: RecordingCoordinator, second: Second
) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        second.write(handle.handle)

    message = transfer_message(coordinator)
    with pytest.raises(RolledBack, match="2 databases") as raised:
        await bank.transact(message, business)
    assert isinstance(raised.value.__cause__, TransactionLost)
    assert second.rows() == 0
    assert_rolled_back(bank.ledger, message, coordinator)


@SQLITE
@pytest.mark.parametrize("joined_first", [True, False])
def test_a_joined_session_with_two_databases_is_rolled_back_in_both(
    bank: Bank, coordinator: RecordingCoordinator, second: Second, joined_first: bool
) -> None:
    message = transfer_message(coordinator)
    with Session(bank.engine) as session:
        if joined_first:
            message.join(session, CHECK)
        second.write(session)
        if not joined_first:
            message.join(session, CHECK)
        session.execute(text(TRANSFER))
        with pytest.raises(TransactionLost, match="2 databases"):
            session.commit()
        with pytest.raises(RolledBack):
            session.rollback()
    assert second.rows() == 0
    assert_rolled_back(bank.ledger, message, coordinator)


@SQLITE
@pytest.mark.parametrize("joined", [False, True])
def test_a_listener_begins_on_no_second_database_once_the_commit_is_under_way(
    bank: Bank, coordinator: RecordingCoordinator, second: Second, joined: bool
) -> None:
    written: list[Session] = []

    def audit(session: Session) -> None:
        second.write(session)
        written.append(session)

    def business(session: Session) -> None:
        if joined:
            message.join(session, CHECK)
            event.listen(session, "before_commit", audit)
            session.execute(text(TRANSFER))
            session.commit()
        else:
            event.listen(session, "before_commit", audit)
            with message.transaction(session, CHECK):
                session.execute(text(TRANSFER))

    message = transfer_message(coordinator)
    with pytest.raises(RolledBack, match="2 databases"), Session(bank.engine) as session:
        business(session)
    assert written == []
    assert second.rows() == 0
    assert_rolled_back(bank.ledger, message, coordinator)


class _Base(DeclarativeBase):
    pass


class Note(_Base):
    """A row beside the account."""

    __tablename__ = "note"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)


class Audit(_Base):
    """A row of the second database."""

    __tablename__ = "trail"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)


def _pending(session: Session) -> None:
    session.add(Audit())


def _by_a_listener(session: Session) -> None:
    event.listen(session, "after_flush_postexec", lambda _session, _context: session.add(Audit()), once=True)


@SQLITE
@pytest.mark.filterwarnings("ignore:transaction already deassociated")  # SQLAlchemy's, of the one that was refused
@pytest.mark.parametrize("way", ["once", "transaction", "join"])
@pytest.mark.parametrize("write", [_pending, _by_a_listener])
def test_flush_of_the_commit_begins_on_no_second_database(
    bank: Bank, coordinator: RecordingCoordinator, second: Second, way: str, write: Callable[[Session], None]
) -> None:
    """A Session writes its objects when it commits, each to the database of its class."""
    _Base.metadata.tables["note"].create(bank.engine)
    _Base.metadata.tables["trail"].create(second.engine)

    def business(session: Session) -> None:
        session.add(Note())
        write(session)

    def attempt(session: Session) -> None:
        message = transfer_message(coordinator)
        if way == "once":
            once(session, CALL, business)
        elif way == "transaction":
            with message.transaction(session, CHECK):
                business(session)
        else:
            message.join(session, CHECK)
            business(session)
            session.commit()

    for _ in range(5):  # in which order a Session commits its databases is chance
        with Session(binds={Note: bank.engine, Audit: second.engine}, bind=bank.engine) as session:
            with pytest.raises((TransactionLost, RolledBack), match="2 databases"):
                attempt(session)
            with contextlib.suppress(RolledBack):
                session.rollback()
        with Session(second.engine) as reader:
            assert reader.scalars(select(Audit)).all() == []
        with Session(bank.engine) as reader:
            assert reader.scalars(select(Note)).all() == []
    assert "submit" not in coordinator.operations


@SYNC
def test_a_session_that_prepares_its_commits_is_refused(bank: Bank, coordinator: RecordingCoordinator) -> None:
    """SQLAlchemy announces no COMMIT of it, so nothing could look before."""
    with Session(bank.engine, twophase=True) as session:
        message = transfer_message(coordinator)
        with pytest.raises(UnsupportedEngine, match="twophase=True"), message.transaction(session, CHECK):
            pytest.fail("the business ran")
        with pytest.raises(UnsupportedEngine, match="twophase=True"):
            once(session, CALL, lambda _: pytest.fail("the business ran"))
    assert bank.ledger.barrier() == []
    assert "submit" not in coordinator.operations


@SQLITE
@pytest.mark.parametrize("joined", [False, True])
def test_a_listener_that_goes_on_after_its_refusal_commits_nothing_in_a_second_database(
    bank: Bank, coordinator: RecordingCoordinator, second: Second, joined: bool
) -> None:
    def audit(session: Session) -> None:
        for _ in range(2):
            with contextlib.suppress(TransactionLost, InvalidRequestError):
                second.write(session)

    def business() -> None:
        message = transfer_message(coordinator)
        with Session(bank.engine) as session:
            if joined:
                message.join(session, CHECK)
            event.listen(session, "before_commit", audit)
            if joined:
                session.execute(text(TRANSFER))
                session.commit()
                return
            with message.transaction(session, CHECK):
                session.execute(text(TRANSFER))

    for _ in range(6):  # SQLAlchemy commits its connections in no order
        with pytest.raises(RolledBack):
            business()
        assert (second.rows(), bank.ledger.balance()) == (0, 100)


@ASYNC
async def test_a_joined_async_session_with_two_connections_is_rolled_back(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    other = create_other(bank)
    async with AsyncClient(coordinator.url) as own, AsyncSession(bank.engine) as session:
        message = await own.message().add("http://bank-b/transfer-in").join(session, CHECK)
        await session.execute(text(TRANSFER))
        await session.execute(text("select 1"), bind_arguments={"bind": other.sync_engine})
        with pytest.raises(TransactionLost, match="2 databases"):
            await session.commit()
        with pytest.raises(RolledBack):
            await session.rollback()
    await other.dispose()
    assert_rolled_back(bank.ledger, message, coordinator)


@SQLITE
def test_closing_a_joined_session_with_two_databases_rolls_back_both(
    bank: Bank, coordinator: RecordingCoordinator, second: Second
) -> None:
    message = transfer_message(coordinator)
    with Session(bank.engine) as session:
        message.join(session, CHECK)
        session.execute(text(TRANSFER))
        second.write(session)
        with pytest.raises(TransactionLost, match="2 databases"):
            session.commit()
        with pytest.raises(RolledBack):
            session.close()
    assert second.rows() == 0
    assert_rolled_back(bank.ledger, message, coordinator)


def create_other(bank: Bank) -> Any:
    """Create another pool on the same server."""
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(bank.engine.url)
