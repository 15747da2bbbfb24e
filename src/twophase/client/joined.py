"""A message inside a transaction of the application's Session (decision 4).

The Session has the transaction open, and ends it itself. The hook is on the outermost COMMIT, not on the Session's:
SQLAlchemy announces it on the Connection, right before it is sent, when everything is flushed. There the row is read
one last time (rule 2), and from there the same rules hold as for a transaction that this library runs. It works for
AsyncSession too, because SQLAlchemy runs these hooks inside its greenlet, where awaiting is possible.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twophase.barrier.open import ask_engine, bind_of, join_transaction
from twophase.barrier.outer import outer_of
from twophase.barrier.producer import read_identity
from twophase.barrier.transaction import SyncTransaction, perform
from twophase.client import flow
from twophase.client.draft import Progress
from twophase.client.sync import SyncDriver
from twophase.core.errors import (
    BeginDeadlinePassed,
    CheckBackCameFirst,
    DatabaseSwitched,
    Fate,
    FunctionRefused,
    OpenTransaction,
    RolledBack,
    TransactionLost,
    TwophaseError,
    UnsupportedEngine,
)

if TYPE_CHECKING:
    from twophase.client.identity import Identities
    from twophase.client.transport.wire import AsyncTransport, HttpAnswer, Operation, Transport


class _JoinDriver(SyncDriver):
    """A driver whose transaction is the application's."""

    def __init__(self, session: Any, transport: Any, identities: Identities) -> None:
        super().__init__(_nothing(), transport, identities, ask_engine(session))
        self._session = session

    def last_statements(self, connection: Any) -> None:
        """Send the statements to the Connection from now on.

        The Session accepts no more statements.
        """
        from twophase.barrier.adapters.sqlalchemy_commit import LastStatements  # noqa: PLC0415 -- an extra

        self._open = LastStatements(connection, self._open.dialect)

    def _begin(self) -> SyncTransaction:
        return join_transaction(self._session)

    def _flush(self) -> None:
        """The Session has flushed before it commits."""

    def _identity(self, table: str, *, allow_unsafe: bool) -> str:
        known = self._identities.get(self._engine, table)
        if known is None:
            # In the current transaction: on SQLite another connection would wait for the very lock it may hold.
            transaction = join_transaction(self._session)
            known = perform(read_identity(transaction.dialect, table, allow_unsafe=allow_unsafe), transaction)
            self._identities.remember(self._engine, table, known)
        return known


class _GreenletTransport:
    """An async transport for blocking code inside SQLAlchemy's greenlet."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        from sqlalchemy.util import await_only  # noqa: PLC0415 -- an extra

        return await_only(self._transport.send(operation, body, timeout_ms))


class _GreenletDriver(_JoinDriver):
    """The same inside SQLAlchemy's greenlet."""

    def _pause(self, seconds: float) -> None:
        import asyncio  # noqa: PLC0415 -- only where it runs already

        from sqlalchemy.util import await_only  # noqa: PLC0415 -- an extra

        await_only(asyncio.sleep(seconds))


def _nothing() -> flow.Flow:
    yield from ()


class _Joined:
    """Follows one transaction of a Session to its end."""

    def __init__(self, attempt: flow.Attempt, driver: _JoinDriver, session: Any) -> None:
        self._attempt = attempt
        self._driver = driver
        self.root = session.get_transaction()
        self.connection = session.connection()
        self.committed = False
        self.refused: BaseException | None = None
        self._ends: Exception = RolledBack("the Session was rolled back.")
        """The error of an end of which no exception is known."""

    def before_commit(self, connection: Any) -> None:
        from twophase.barrier.adapters.sqlalchemy_commit import roll_back_below  # noqa: PLC0415 -- an extra

        self._driver.last_statements(connection)
        try:
            if self.refused is not None:
                raise self.refused  # a listener has swallowed it
            self._driver.play(self._attempt.before_commit())
            self._driver.play(self._attempt.look_and_mark_again())
        except BaseException as error:
            self.refused = error
            roll_back_below(connection)
            raise
        self._ends = TransactionLost("the Session's commit ended in an error.")

    def note_commit(self) -> None:
        """Note the commit of the Session's transaction.

        A cancellation may end another message's submit before this one's begins.
        """
        self.committed = True
        self._attempt.draft.progress = Progress.COMMITTED

    def after_end(self) -> None:
        if self.committed:
            self._driver.play(self._attempt.committed())
        else:
            seen = self.refused or sys.exc_info()[1] or self._ends
            self._driver.play(self._attempt.decide(seen, of_block=self.refused is None))


_JOINED = "twophase.joined"
_SWITCHED = (
    "The Session's transaction is in another database than the one that the check address names. The barrier row is "
    "taken back, and the transaction is still open: end it yourself; it has nothing to do with the message."
)

_HELD_TWICE = (
    "the Session's transaction had the barrier row of this gid already. It is rolled back, with both messages."
)


def _follow(session: Any, joined: _Joined) -> None:
    """Follow the Session's transaction to its end.

    A Session keeps its hooks, because a hook cannot be removed while one runs.
    """
    from sqlalchemy import event  # noqa: PLC0415 -- an extra

    from twophase.barrier.adapters.sqlalchemy_commit import look_last  # noqa: PLC0415 -- an extra

    session.info.setdefault(_JOINED, []).append(joined)
    look_last(session.connection(), joined.before_commit)
    if not event.contains(session, "after_commit", _after_commit):
        event.listen(session, "before_commit", _before_commit)
        event.listen(session, "after_commit", _after_commit)
        event.listen(session, "after_transaction_end", _after_transaction_end)


def _before_commit(session: Any) -> None:
    if session.in_nested_transaction():
        return
    from sqlalchemy import event  # noqa: PLC0415 -- an extra

    from twophase.barrier.adapters.sqlalchemy_commit import require_one_database  # noqa: PLC0415 -- an extra

    if not session.info[_JOINED]:
        return
    session.flush()  # here, because it may begin on another database
    try:
        require_one_database(session)
    except TransactionLost as error:
        for joined in session.info[_JOINED]:
            joined.refused = error
        raise
    if not event.contains(session, "after_begin", _after_begin):
        event.listen(session, "after_begin", _after_begin)
    # Behind the application's: the error of one of these would else be raised from a commit as if it had failed.
    event.remove(session, "after_commit", _after_commit)
    event.listen(session, "after_commit", _after_commit)


def _after_begin(session: Any, _transaction: Any, begun: Any) -> None:
    """Refuse another connection that the commit begins on.

    A listener to the commit, or to a flush, may write to another database, whose COMMIT might be the first one sent.
    """
    from twophase.barrier.adapters.sqlalchemy_commit import several_databases  # noqa: PLC0415 -- an extra

    for joined in session.info[_JOINED]:
        if begun is not joined.connection:
            begun.rollback()  # so that it commits nothing for a listener that swallows this and continues
            joined.refused = several_databases(2)
            raise joined.refused


def _after_commit(session: Any) -> None:
    # Announced for savepoints too.
    if session.in_nested_transaction():
        return
    for joined in session.info[_JOINED]:
        joined.note_commit()


def _after_transaction_end(session: Any, transaction: Any) -> None:
    if transaction.parent is not None:
        return
    from sqlalchemy import event  # noqa: PLC0415 -- an extra

    ended = [joined for joined in session.info[_JOINED] if joined.root is transaction]
    session.info[_JOINED] = [joined for joined in session.info[_JOINED] if joined.root is not transaction]
    if event.contains(session, "after_begin", _after_begin):
        event.remove(session, "after_begin", _after_begin)
    first: Exception | None = None
    for joined in ended:
        try:
            joined.after_end()
        except Exception as error:  # noqa: BLE001 -- raised after every message is handled
            first = first or error
    if first is not None:
        raise first


_NOT_AWAITED = "twophase.not_awaited"


def refuse_until_awaited(session: Any, gid: str) -> Callable[[], None]:
    """Refuse the commits of an AsyncSession until the join on it is awaited.

    A coroutine that nothing awaits joins nothing: the commit would succeed, and the message would be lost.

    Returns:
        The function that allows them again. The end of the transaction does so, too.
    """
    orm = sys.modules.get("sqlalchemy.orm")
    sync_session: Any = getattr(session, "sync_session", None)
    if orm is None or not isinstance(sync_session, orm.Session):
        return lambda: None  # refused when it is awaited
    from sqlalchemy import event  # noqa: PLC0415 -- an extra

    waiting: set[str] = sync_session.info.setdefault(_NOT_AWAITED, set())
    waiting.add(gid)
    if not event.contains(sync_session, "before_commit", _require_awaited):
        event.listen(sync_session, "before_commit", _require_awaited)
        event.listen(sync_session, "after_transaction_end", _forget_not_awaited)
    return lambda: waiting.discard(gid)


def _require_awaited(session: Any) -> None:
    if session.in_nested_transaction():
        return
    for gid in session.info.get(_NOT_AWAITED, ()):
        raise FunctionRefused(
            "the message's `join` was not awaited, so this transaction would commit without the message.",
            gid=gid,
            remedy="Write `await message.join(session, check)`, and roll the Session back. Nothing was committed.",
        )


def _forget_not_awaited(session: Any, transaction: Any) -> None:
    if transaction.parent is None:
        session.info.pop(_NOT_AWAITED, None)


def join(context: flow.FlowContext, check_url: str, session: Any, transport: Transport, identities: Identities) -> None:
    """Prepare, write the barrier row, and follow the transaction (`Message.join`).

    The row goes into the Session's transaction.
    """
    session = _usable(session)
    _enter(context, check_url, _JoinDriver(session, transport, identities), session)


async def join_async(
    context: flow.FlowContext, check_url: str, session: Any, transport: AsyncTransport, identities: Identities
) -> None:
    """`join` for an AsyncSession (`AsyncMessage.join`)."""
    if not hasattr(session, "run_sync") or not hasattr(session, "sync_session"):
        raise UnsupportedEngine("An AsyncMessage joins an AsyncSession; a Message joins a Session.")

    def enter(sync_session: Any) -> None:
        sync_session = _usable(sync_session)
        driver = _GreenletDriver(sync_session, _GreenletTransport(transport), identities)
        _enter(context, check_url, driver, sync_session)

    await session.run_sync(enter)


def _enter(context: flow.FlowContext, check_url: str, driver: _JoinDriver, session: Any) -> None:
    opening = driver.play(flow.prepare_for_transaction(context, check_url))
    attempt = flow.Attempt(context, opening)
    try:
        driver.play(attempt.begin())
    except CheckBackCameFirst as error:
        if error.fate is Fate.ROLLED_BACK:
            context.draft.progress = Progress.ROLLED_BACK
            raise
        # First the Session gives back what the question would wait for. And its caller must not commit this repetition.
        driver.play(attempt.failed(error))
        raise RolledBack(_HELD_TWICE, gid=context.draft.gid) from error
    except (DatabaseSwitched, BeginDeadlinePassed) as error:
        # The row is written, and the application may catch this and commit.
        driver.play(attempt.withdraw())
        if isinstance(error, DatabaseSwitched):
            raise DatabaseSwitched(_SWITCHED, gid=context.draft.gid) from None
        error.fate = Fate.NOT_STARTED  # of the message: the Session's transaction continues
        raise
    except BaseException as error:
        if attempt.begun and not (context.draft.gid_is_ours and isinstance(error, TwophaseError)):
            # Another transaction may have committed this gid; and this one, if it has the row, is not followed.
            context.draft.progress = Progress.UNDECIDED
        raise
    _follow(session, _Joined(attempt, driver, session))


def _usable(session: Any) -> Any:
    """Return the Session whose outermost commit is its own.

    It raises UnsupportedEngine and OpenTransaction.
    """
    orm = sys.modules.get("sqlalchemy.orm")
    if orm is not None and isinstance(session, orm.scoped_session):
        session = session()
    if orm is None or not isinstance(session, orm.Session):
        raise UnsupportedEngine("Only a SQLAlchemy Session can be joined; an AsyncMessage joins an AsyncSession.")
    if outer_of(session) is not None or bind_of(session) is not ask_engine(session):
        raise OpenTransaction("The Session is bound to a Connection, whose transaction may outlive the Session's.")
    if session.in_nested_transaction():
        raise OpenTransaction("The Session is inside a savepoint, which may be rolled back alone.")
    from twophase.barrier.adapters.sqlalchemy_commit import require_plain_commit  # noqa: PLC0415 -- an extra

    require_plain_commit(session)
    return session
