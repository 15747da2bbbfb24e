"""Writes beside an open block are refused.

They go to a connection or a session of their own, and would stay when the block is rolled back, or be lost when it
commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, StaticPool, create_engine, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncMessage, Message, Verdict
from twophase.barrier import aonce, check_back, install, once
from twophase.barrier.adapters.sqlalchemy_beside import named
from twophase.barrier.beside import Block, open_blocks
from twophase.errors import OutsideTransaction

CHECK = "http://bank-a/twophase/check"
ALLOWED = {"twophase_outside": True}
CALL = {"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"}


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """A row of the business."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    pieces: Mapped[int]


INSERT = text("insert into orders (pieces) values (1)")


class Shop:
    """A file with orders and a barrier, and engines on it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.engine = create_engine(f"sqlite:///{file}", poolclass=NullPool, connect_args={"timeout": 0.2})
        Base.metadata.create_all(self.engine)
        install(self.engine)

    def orders(self) -> int:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            (count,) = connection.execute("select count(*) from orders").fetchone()
        return int(count)

    def rows(self) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            return [reason for (reason,) in connection.execute("select reason from barrier")]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "shop.db")
    yield shop
    shop.engine.dispose()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Shop]:
    """Another database."""
    other = Shop(tmp_path / "other.db")
    yield other
    other.engine.dispose()


@pytest.fixture
async def async_engine(shop: Shop) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{shop.file}", poolclass=NullPool, connect_args={"timeout": 0.2})
    yield engine
    await engine.dispose()


@pytest.fixture
def coordinator() -> Iterator[RecordingCoordinator]:
    with RecordingCoordinator().running() as running:
        yield running


def by_core(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(insert(Order).values(pieces=1))


def by_text(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("/* by hand */ insert into orders (pieces) values (1)")


def by_commit(engine: Engine) -> None:
    with Session(engine) as session:
        session.add(Order(pieces=1))
        session.commit()


def by_bulk(engine: Engine) -> None:
    with Session(engine) as session:
        session.execute(insert(Order), [{"pieces": 1}, {"pieces": 2}])
        session.commit()


def by_scoped_session(engine: Engine) -> None:
    db = scoped_session(sessionmaker(engine))
    db.add(Order(pieces=1))
    db.commit()


def by_update(engine: Engine) -> None:
    with Session(engine) as session:
        order = session.scalars(select(Order)).one()
        order.pieces = 7
        session.commit()


WRITES: dict[str, Callable[[Engine], None]] = {
    "core": by_core,
    "text": by_text,
    "commit": by_commit,
    "bulk": by_bulk,
    "scoped session": by_scoped_session,
    "update": by_update,
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("where", ["the same database", "another database"])
def test_a_producers_write_beside_the_block_is_refused(
    shop: Shop, other: Shop, coordinator: RecordingCoordinator, write: str, where: str
) -> None:
    target = shop if where == "the same database" else other
    by_core(target.engine)
    before = target.orders()
    message = Message(coordinator.url).add("http://bank-b/in")

    def order(connection: Connection) -> None:
        connection.execute(INSERT)
        WRITES[write](target.engine)

    with pytest.raises(OutsideTransaction) as refused:
        message.do_and_submit(shop.engine, order, CHECK)
    assert refused.value.code == "TP-5014"
    assert str(target.file) in refused.value.message
    assert "twophase_outside" in refused.value.remedy
    assert coordinator.operations == ["prepare", "abort"]
    assert (target.orders(), shop.rows()) == (before, ["rollback"])
    WRITES[write](target.engine)  # allowed: no block is open


def test_a_login_is_not_in_the_refusal() -> None:
    assert (
        named(create_engine("postgresql+psycopg://teller:hunter2@bank-a/bank")) == "'postgresql+psycopg://bank-a/bank'"
    )


@pytest.mark.parametrize("given_as", ["connection", "session", "sqlite3"])
def test_it_is_refused_whatever_the_block_is_given(
    shop: Shop, other: Shop, coordinator: RecordingCoordinator, given_as: str
) -> None:
    message = Message(coordinator.url).add("http://bank-b/in")
    with contextlib.ExitStack() as stack:
        given: Any
        if given_as == "connection":
            given = stack.enter_context(shop.engine.connect())
        elif given_as == "session":
            given = stack.enter_context(Session(shop.engine))
        else:
            given = stack.enter_context(contextlib.closing(sqlite3.connect(shop.file)))
        with pytest.raises(OutsideTransaction), message.transaction(given, CHECK):
            by_core(other.engine)
    assert (other.orders(), coordinator.operations) == (0, ["prepare", "abort"])


async def test_an_async_producers_write_beside_the_block_is_refused(
    shop: Shop, async_engine: AsyncEngine, coordinator: RecordingCoordinator
) -> None:
    message = AsyncMessage(coordinator.url).add("http://bank-b/in")

    async def order(connection: Any) -> None:
        async with AsyncSession(async_engine) as session:
            await connection.execute(INSERT)
            session.add(Order(pieces=2))
            await session.commit()

    with pytest.raises(OutsideTransaction):
        await message.do_and_submit(async_engine, order, CHECK)
    assert (shop.orders(), shop.rows()) == (0, ["rollback"])


async def test_an_async_block_takes_sessions_on_what_it_is_given(
    shop: Shop, async_engine: AsyncEngine, coordinator: RecordingCoordinator
) -> None:
    message = AsyncMessage(coordinator.url).add("http://bank-b/in")
    async with message.transaction(async_engine, CHECK) as connection, AsyncSession(connection) as session:
        session.add(Order(pieces=2))
        await session.flush()
    async with AsyncSession(async_engine) as given:
        second = AsyncMessage(coordinator.url).add("http://bank-b/in")
        async with second.transaction(given, CHECK) as session:
            session.add(Order(pieces=3))
    assert (shop.orders(), shop.rows()) == (2, ["msg", "msg"])


def test_a_session_on_the_blocks_connection_that_was_not_flushed_is_refused(
    shop: Shop, coordinator: RecordingCoordinator
) -> None:
    """Its changes would be lost, and the message delivered."""
    message = Message(coordinator.url).add("http://bank-b/in")
    with (
        pytest.raises(OutsideTransaction, match="changes of Order") as refused,
        message.transaction(shop.engine, CHECK) as connection,
    ):
        Session(connection).add(Order(pieces=1))
    assert "flush()" in refused.value.remedy
    assert (shop.orders(), shop.rows()) == (0, ["rollback"])


def close_added(connection: Connection) -> None:
    with Session(connection) as session:
        session.add(Order(pieces=1))


def close_changed(connection: Connection) -> None:
    with Session(connection) as session:
        session.scalars(select(Order)).one().pieces = 7


def close_deleted(connection: Connection) -> None:
    with Session(connection) as session:
        session.delete(session.scalars(select(Order)).one())


def close_again(connection: Connection) -> None:
    session = Session(connection)
    for _ in range(2):
        session.add(Order(pieces=1))
        session.flush()
        session.close()
    session.add(Order(pieces=1))
    session.close()


@pytest.mark.parametrize("business", [close_added, close_changed, close_deleted, close_again])
def test_a_session_that_is_closed_with_unwritten_changes_is_refused(
    shop: Shop, coordinator: RecordingCoordinator, business: Callable[[Connection], None]
) -> None:
    """Their changes would be lost, and the message delivered."""
    with shop.engine.begin() as connection:
        connection.execute(insert(Order).values(pieces=1))
    message = Message(coordinator.url).add("http://bank-b/in")
    with pytest.raises(OutsideTransaction, match="a Session was closed that held changes of Order") as refused:
        message.do_and_submit(shop.engine, business, CHECK)
    assert "flush()" in refused.value.remedy
    with pytest.raises(OutsideTransaction):
        once(shop.engine, CALL, business)
    assert (shop.orders(), shop.rows()) == (1, ["rollback"])


async def test_an_async_session_that_is_closed_with_unwritten_changes_is_refused(
    shop: Shop, async_engine: AsyncEngine
) -> None:
    async def effect(connection: Any) -> None:
        async with AsyncSession(connection) as session:
            session.add(Order(pieces=1))

    with pytest.raises(OutsideTransaction):
        await aonce(async_engine, CALL, effect)
    assert (shop.orders(), shop.rows()) == (0, [])


def test_a_session_that_is_closed_by_an_error_is_taken(shop: Shop, coordinator: RecordingCoordinator) -> None:
    message = Message(coordinator.url).add("http://bank-b/in")
    with message.transaction(shop.engine, CHECK) as connection:
        with contextlib.suppress(KeyError), Session(connection) as session:
            session.add(Order(pieces=1))
            raise KeyError
        with Session(connection) as session:
            session.add(Order(pieces=2))
            session.flush()
    assert (shop.orders(), shop.rows()) == (1, ["msg"])
    session.add(Order(pieces=1))
    session.close()  # behind the block, it is the application's


def test_a_block_that_handles_an_error_around_it_loses_nothing_either(
    shop: Shop, coordinator: RecordingCoordinator
) -> None:
    """An example is one that makes what an earlier statement has not found."""
    message = Message(coordinator.url).add("http://bank-b/in")
    try:
        raise KeyError
    except KeyError:
        with pytest.raises(OutsideTransaction, match="a Session was closed"):  # noqa: SIM117 -- the block is inside
            with message.transaction(shop.engine, CHECK) as connection, Session(connection) as session:
                session.add(Order(pieces=1))
    assert shop.orders() == 0


def test_a_session_of_its_own_may_drop_changes(shop: Shop, coordinator: RecordingCoordinator) -> None:
    message = Message(coordinator.url).add("http://bank-b/in")
    with message.transaction(shop.engine, CHECK), Session(shop.engine) as session:
        session.add(Order(pieces=1))
    assert (shop.orders(), shop.rows()) == (0, ["msg"])


@pytest.mark.parametrize("end", ["flush", "commit", "expunge"])
def test_a_session_on_the_blocks_connection_that_holds_nothing_is_taken(
    shop: Shop, coordinator: RecordingCoordinator, end: str
) -> None:
    message = Message(coordinator.url).add("http://bank-b/in")
    with message.transaction(shop.engine, CHECK) as connection:
        session = Session(connection)
        session.add(Order(pieces=1))
        if end == "expunge":
            session.expunge_all()
        else:
            getattr(session, end)()
    assert shop.orders() == (1 if end in {"flush", "commit"} else 0)
    assert coordinator.operations == ["prepare", "submit"]


def test_a_session_that_would_be_flushed_behind_the_block_is_refused(
    shop: Shop, coordinator: RecordingCoordinator
) -> None:
    """A framework injects such a session, and commits it when the request ends."""
    with Session(shop.engine) as injected:
        injected.scalars(select(Order)).all()
        injected.rollback()
        injected.begin()
        message = Message(coordinator.url).add("http://bank-b/in")
        with (
            pytest.raises(OutsideTransaction, match="outside the transaction"),
            message.transaction(shop.engine, CHECK),
        ):
            injected.add(Order(pieces=1))
        injected.rollback()
    assert (shop.orders(), shop.rows()) == (0, ["rollback"])


def test_reads_and_what_the_application_allows_pass(shop: Shop, other: Shop, coordinator: RecordingCoordinator) -> None:
    allowed = other.engine.execution_options(**ALLOWED)
    message = Message(coordinator.url).add("http://bank-b/in")
    with message.transaction(shop.engine, CHECK) as connection:
        connection.execute(INSERT)
        with Session(other.engine) as reader:
            assert reader.scalar(select(func.count()).select_from(Order)) == 0
        by_core(allowed)
        by_commit(allowed)
        late = Session(allowed)
        late.add(Order(pieces=3))
        with other.engine.begin() as audit:
            audit.execute(INSERT, execution_options=ALLOWED)
    assert (shop.orders(), other.orders()) == (1, 3)
    late.commit()
    assert other.orders() == 4


def test_a_message_or_a_check_back_inside_the_block_has_a_transaction_of_its_own(
    shop: Shop, other: Shop, coordinator: RecordingCoordinator
) -> None:
    outer = Message(coordinator.url).add("http://bank-b/in")
    inner = Message(coordinator.url).add("http://bank-b/in")
    with outer.transaction(shop.engine, CHECK) as connection:
        connection.execute(INSERT)
        assert check_back(other.engine, "never-began").verdict is Verdict.ROLLED_BACK
        with inner.transaction(other.engine, CHECK) as own:
            own.execute(INSERT)
        once(other.engine, CALL, lambda own: own.execute(INSERT))
        with pytest.raises(OutsideTransaction):
            by_core(other.engine)
    assert (shop.orders(), other.orders()) == (1, 2)


def test_the_code_of_two_blocks_writes_on_what_each_is_given(
    shop: Shop, other: Shop, coordinator: RecordingCoordinator
) -> None:
    one, two = (Message(coordinator.url).add("http://bank-b/in") for _ in range(2))
    with one.transaction(shop.engine, CHECK) as first, two.transaction(other.engine, CHECK) as second:
        first.execute(INSERT)
        second.execute(INSERT)
        with Session(first) as session:
            session.add(Order(pieces=1))
            session.flush()
    assert (shop.orders(), other.orders()) == (2, 1)


def _open() -> list[Block]:
    return list(open_blocks())


def test_a_pool_of_one_connection_is_the_blocks_own(coordinator: RecordingCoordinator) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    install(engine)
    message = Message(coordinator.url).add("http://bank-b/in")
    with message.transaction(engine, CHECK) as connection:
        connection.execute(INSERT)
        other = engine.connect()  # kept: a connection that is given back is rolled back
        other.execute(INSERT)
    other.close()
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(Order)) == 2


def test_another_thread_and_a_context_of_before_are_not_the_block(
    shop: Shop, other: Shop, coordinator: RecordingCoordinator
) -> None:
    before = contextvars.copy_context()
    message = Message(coordinator.url).add("http://bank-b/in")
    with message.transaction(shop.engine, CHECK):
        thread = threading.Thread(target=by_core, args=(other.engine,))
        thread.start()
        thread.join()
        before.run(by_core, other.engine)
        inside = contextvars.copy_context()
        assert inside.run(_open)
    assert (other.orders(), inside.run(_open)) == (2, [])
    inside.run(by_core, other.engine)  # a task that outlives the block


def test_a_block_that_a_signal_cut_off_refuses_nothing(shop: Shop) -> None:
    """Its owner has gone, and never ends it."""
    block = Block(shop.engine)
    assert _open() == [block]
    del block
    assert _open() == []
    by_core(shop.engine)


async def test_a_block_that_is_cancelled_is_left(
    shop: Shop, async_engine: AsyncEngine, other: Shop, coordinator: RecordingCoordinator
) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        try:
            async with AsyncMessage(coordinator.url).add("http://bank-b/in").transaction(async_engine, CHECK):
                inside.set()
                await asyncio.Event().wait()
        finally:
            by_core(other.engine)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (shop.orders(), other.orders()) == (0, 1)


@pytest.mark.parametrize("write", WRITES)
def test_a_branchs_write_beside_its_transaction_is_refused_however_often_it_is_called(
    shop: Shop, other: Shop, write: str
) -> None:
    by_core(other.engine)

    def effect(connection: Connection) -> None:
        connection.execute(INSERT)
        WRITES[write](other.engine)

    for _ in range(2):
        with pytest.raises(OutsideTransaction):
            once(shop.engine, CALL, effect)
    assert (shop.orders(), other.orders(), shop.rows()) == (0, 1, [])


async def test_an_async_branchs_write_beside_its_transaction_is_refused(shop: Shop, async_engine: AsyncEngine) -> None:
    async def effect(_connection: Any) -> None:
        async with AsyncSession(async_engine) as session:
            await session.execute(INSERT)

    with pytest.raises(OutsideTransaction):
        await aonce(async_engine, CALL, effect)
    assert (shop.orders(), shop.rows()) == (0, [])


def test_a_branch_that_leaves_a_session_unflushed_is_refused(shop: Shop) -> None:
    with pytest.raises(OutsideTransaction):
        once(shop.engine, CALL, lambda connection: Session(connection).add(Order(pieces=1)))
    assert (shop.orders(), shop.rows()) == (0, [])
