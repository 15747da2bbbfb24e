"""`Message`: the branches that a producer writes, and all its blocking calls.

`AsyncMessage` has the same methods for asyncio. What only describes the message is in `BaseMessage`, which both share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack, overload

from twophase.barrier.effect import require_blocking, require_ended
from twophase.client import flow, manual
from twophase.client.base_client import BaseClient, achannel_of, channel_of, default_options
from twophase.client.channel import Channel, SyncChannel, speaks_grpc
from twophase.client.draft import Draft, Progress
from twophase.client.joined import join
from twophase.client.options import MessageOptions, read_options
from twophase.client.sync import FLOW_RUNTIME
from twophase.client.transaction import LocalTransaction
from twophase.core.errors import ConfigurationError, InvalidRequest
from twophase.core.gid import fresh_gid, validate_gid
from twophase.core.message import Branch

if TYPE_CHECKING:
    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, Blocking, DjangoHandle, H
    from twophase.client.aio import AsyncDriver
    from twophase.client.sync import SyncDriver
    from twophase.client.transaction import AsyncTransaction, Transaction

T = TypeVar("T")
C = TypeVar("C", bound=Channel)


class BaseMessage(Generic[C]):
    """The part that `Message` and `AsyncMessage` share: the message itself."""

    _kind: ClassVar[type[Channel]]
    """The channel of the clients that it takes."""
    _takes: ClassVar[str]
    """The name of these clients."""

    def __init__(self, server: str | BaseClient[C], gid: str | None = None, **options: Unpack[MessageOptions]) -> None:
        """Begin a message; nothing is sent.

        Arguments:
            server: the coordinator's address, which uses connections shared by this process, or a client with its own.
            gid: its name for ever, 1 to 128 bytes; made here by default.
            options: see `MessageOptions`; those not given are the client's.

        Raises:
            InvalidRequest, LimitExceeded, ConfigurationError: one of these cannot be, and the message names it.
            TypeError: there is no such option.
        """
        is_own = gid is None
        if gid is None:
            gid = fresh_gid(time.time_ns() // 1_000_000)
        elif not isinstance(gid, str):
            raise InvalidRequest(f"gid is of {type(gid).__name__}, not a text; write str(…).")
        else:
            validate_gid(gid)
        if not isinstance(server, str) and not (
            isinstance(server, BaseClient) and isinstance(server._channel, self._kind)  # noqa: SLF001 -- its channel
        ):
            raise ConfigurationError(
                f"{type(self).__name__} takes an address or {self._takes}, and this is of type {type(server).__name__}."
            )
        defaults = default_options(server)
        takes_bytes = speaks_grpc(server if isinstance(server, str) else server.url)
        asked = read_options(options, defaults) if options else defaults
        self._draft = Draft(gid, asked, gid_is_ours=is_own, takes_bytes=takes_bytes)
        self._server: str | BaseClient[C] = server

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.gid} {self.state.value}>"

    @property
    def gid(self) -> str:
        """The message's id in the coordinator and in the barrier."""
        return self._draft.gid

    @property
    def state(self) -> Progress:
        """The message's progress, as this process knows it."""
        return self._draft.progress

    @property
    def submitted(self) -> bool:
        """True when the coordinator has acknowledged the submit.

        False after a commit: the check-back delivers.
        """
        return self._draft.progress is Progress.SUBMITTED

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches so far."""
        return tuple(self._draft.branches)

    def add(self, url: str, payload: Any = None) -> Self:
        """Add a branch; returns the message, so that calls can be chained.

        Arguments:
            url: its address, or `topic://name` for every subscriber of a topic.
            payload: the body of the call: anything msgspec writes as JSON, or bytes of UTF-8 text, by a grpc:// server
                any bytes. Without one the call is a GET.

        Raises:
            InvalidRequest: no address, no JSON, prepared already without `allow_late_branches`, or submitted already.
            LimitExceeded: too many branches, or too large.
        """
        self._draft.add(url, payload)
        return self

    def _context(
        self,
        channel: Channel,
        table: str | None = None,
        foreign_check: bool = False,  # noqa: FBT001, FBT002 -- handed on
    ) -> flow.FlowContext:
        return flow.FlowContext(
            self._draft,
            channel.bounds,
            FLOW_RUNTIME,
            table or channel.barrier_table,
            channel.allow_unsafe_database,
            channel.encode,
            not foreign_check,
        )

    def _check(self, channel: Channel, check: str | None) -> str:
        check = channel.check if check is None else check
        if check is None:
            raise InvalidRequest(
                "the message has no check address.",
                gid=self.gid,
                remedy="Give `check=…`, the address of your check-back route; or once for all: Client(url, check=…).",
            )
        return check


class Message(BaseMessage[SyncChannel]):
    """A set of branches, called if and only if the local transaction commits.

    >>> message = Message("http://localhost:36789").add("http://bank-b/transfer-in", {"account": "B", "amount": 30})
    >>> message.branches
    (Branch(url='http://bank-b/transfer-in', payload=b'{"account":"B","amount":30}', subscribers=None),)
    >>> message.state
    <Progress.NEW: 'new'>

    One object names one message and is used once: for one `transaction`, `do_and_submit` or `join`, or manually
    with `prepare`, `submit` and `abort`. It is not for several threads at a time.
    """

    _kind = SyncChannel
    _takes = "Client"

    @overload
    def transaction(
        self, engine: Asyncpg, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> AsyncTransaction[AsyncpgHandle]: ...
    @overload
    def transaction(
        self,
        engine: Asynchronous[H],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> AsyncTransaction[H]: ...
    @overload
    def transaction(
        self, engine: str, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> Transaction[DjangoHandle]: ...
    @overload
    def transaction(
        self, engine: Blocking[H], check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> Transaction[H]: ...
    def transaction(
        self, engine: Any, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> Any:
        """Run the local transaction and the message as one.

        The order is: prepare, begin, *your statements*, commit, submit.

        Arguments:
            engine: a SQLAlchemy Engine, idle Connection or Session; an idle connection of sqlite3, psycopg or PyMySQL;
                a Django alias; with `async with` an AsyncEngine, AsyncConnection or AsyncSession, asyncpg's Pool
                or Connection, or an idle connection of psycopg or aiosqlite. This library begins and commits.
            check: the address of the check-back route that answers for this database; the client's by default.
            table: the barrier table, `name` or `schema.name`; by default that of the client.
            foreign_check: the check-back route is another library's that reads the same barrier table, such as a Go
                service of dtm's. Then whatever answers 200 at this address says "committed", a login page, too.

        Raises, when entered: NotPrepared and its kin, CheckBackCameFirst, OpenTransaction, AutocommitRefused,
            UnsupportedEngine, BarrierTableMissing: the business did not run.
        Raises, when left: the business' own exception, if it is rolled back for certain; CommittedDespiteError or
            Undecided from it otherwise; NotYetDelivered with wait_result. Nothing, if only submit did not get through.
        """

        def driver() -> SyncDriver:
            channel = channel_of(self._server, "async with message.transaction(…)")
            return channel.driver(
                flow.transaction(self._context(channel, table, foreign_check), self._check(channel, check)), engine
            )

        def adriver() -> AsyncDriver:
            channel = achannel_of(self._server)
            return channel.driver(
                flow.transaction(self._context(channel, table, foreign_check), self._check(channel, check)), engine
            )

        return LocalTransaction(engine, driver, adriver)

    @overload
    def do_and_submit(
        self,
        engine: Blocking[H],
        function: Callable[[H], T],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> T: ...
    @overload
    def do_and_submit(
        self,
        engine: str,
        function: Callable[[DjangoHandle], T],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> T: ...
    def do_and_submit(
        self,
        engine: Any,
        function: Callable[[Any], T],
        check: str | None = None,
        *,
        table: str | None = None,
        foreign_check: bool = False,
    ) -> T:
        """Run `transaction` around `function(connection)`, and return its result.

        It raises as `transaction`.

        Raises, too:
            FunctionRefused: `function` is async, or returned what waits to be awaited or iterated; nothing was
                committed.
        """
        require_blocking(function, "AsyncMessage.do_and_submit")
        with self.transaction(engine, check, table=table, foreign_check=foreign_check) as connection:
            return require_ended(function(connection), "use `AsyncMessage.do_and_submit`")

    def join(
        self, session: Any, check: str | None = None, *, table: str | None = None, foreign_check: bool = False
    ) -> Self:
        """Put the message into the transaction of a SQLAlchemy Session.

        The Session has it open, or begins it with this call. The application continues and ends the transaction as
        usual. Its COMMIT is refused if the barrier row is not in it any more. After the COMMIT the message is
        submitted; after a rollback the barrier is asked.

        Arguments:
            session: a Session on an Engine, outside a savepoint.
            check, table, foreign_check: as `transaction`.

        Raises: what `transaction` raises when entered; `session.commit()` and `session.rollback()` then raise what it
            raises when left. CommittedDespiteError, BranchesLost, Undecided, RolledBack: another transaction has
            written the row of this gid, and the Session is rolled back.
        """
        channel = channel_of(self._server, "await AsyncMessage(…).join(…)")
        context = self._context(channel, table, foreign_check)
        join(context, self._check(channel, check), session, channel.transport, channel.identities)
        return self

    def prepare(self, check: str | None = None, *, foreign_check: bool = False) -> Self:
        """Prepare manually, for a local transaction that this library does not run.

        Arguments:
            check: the check-back route's address; the client's by default.
            foreign_check: the route is another library's, whose answers lack the `X-Twophase-Verdict` header.

        Raises:
            InvalidRequest, LimitExceeded: `check` is no address, or a limit is passed.
            MessageUsedTwice: this Message belongs to a transaction, or is decided.
            CoordinatorUnreachable: not known whether it arrived; repeating is safe.
            ContentConflict, StateConflict, Overloaded, ShuttingDown, …: what the coordinator refuses with.
        """
        channel = channel_of(self._server, "await AsyncMessage(…).prepare(…)")
        address = self._check(channel, check)
        channel.driver(manual.prepare(self._context(channel), address, explicit_verdict=not foreign_check)).start()
        return self

    def submit(self) -> Self:
        """Submit manually.

        The message is plain, or was prepared manually; or its submit was lost after a commit.

        Raises:
            InvalidRequest: there is no branch.
            MessageUsedTwice: its local transaction is under way or did not commit, so this would be a ghost.
            CoordinatorUnreachable: not known whether it arrived; repeating is safe.
            NotYetDelivered: submitted; with wait_result, not all branches have succeeded.
            ContraryDecision: the coordinator holds it failed.
            ContentConflict, ForgottenMessage, Overloaded, …: what else the coordinator refuses with.
        """
        channel = channel_of(self._server, "await AsyncMessage(…).submit(…)")
        channel.driver(manual.submit(self._context(channel))).start()
        return self

    def abort(self) -> Self:
        """Abort a manually prepared message.

        Raises:
            MessageUsedTwice: its local transaction is under way or committed, so this would lose it.
            UnknownMessage: the coordinator does not know it.
            ContraryDecision: it is submitted.
            CoordinatorUnreachable: not known whether it arrived; repeating is safe.
        """
        channel = channel_of(self._server, "await AsyncMessage(…).abort(…)")
        channel.driver(manual.abort(self._context(channel))).start()
        return self
