"""`Message`: what a producer writes, and the whole of what it calls.

One class for blocking code and for asyncio. Whatever only describes the message is the same for both; whatever
talks to the coordinator has two spellings, `submit` and `asubmit`, and `transaction` is entered with `with` or
with `async with`, as the engine is.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from twophase.barrier.effect import await_end, require_blocking, require_ended
from twophase.client import flow, manual
from twophase.client.channel import Channel, speaks_grpc
from twophase.client.draft import Draft, Progress, checked_headers, count, milliseconds, time_ms
from twophase.client.endpoints import Endpoint, achannel_of, channel_of
from twophase.client.joined import ajoin, join
from twophase.client.sync import SURROUNDINGS
from twophase.client.transaction import LocalTransaction
from twophase.core import limits
from twophase.core.errors import InvalidRequest
from twophase.core.gid import fresh_gid, validate_gid
from twophase.core.message import Branch
from twophase.core.options import DURABILITIES, Durability, Options

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, Blocking, DjangoHandle, H
    from twophase.client.aio import AsyncDriver
    from twophase.client.sync import SyncDriver
    from twophase.client.transaction import AsyncTransaction, Transaction

T = TypeVar("T")

_USUAL = Options(strict=True)
"""The options of nearly every message."""


class Message:
    """A set of branches, called if and only if the local transaction commits.

    >>> message = Message("http://localhost:36789").add("http://bank-b/transfer-in", {"account": "B", "amount": 30})
    >>> message.branches
    (Branch(url='http://bank-b/transfer-in', payload=b'{"account":"B","amount":30}', subscribers=None),)
    >>> message.state
    <Progress.NEW: 'new'>

    One object names one message and is used once: for one `transaction`, `do_and_submit` or `join`, or manually
    with `prepare`, `submit` and `abort`. It is not for several threads or tasks at a time.
    """

    def __init__(
        self,
        server: str | Endpoint[Any],
        gid: str | None = None,
        *,
        wait_result: bool = False,
        delay: float | timedelta = 0,
        deliver_at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        request_timeout: float | timedelta = 0,
        retry_interval: float | timedelta = 0,
        timeout_to_fail: float | timedelta = 0,
        attempts_max: int = 0,
        concurrent: bool = False,
        open: bool = False,  # noqa: A002 -- the wire's word, and no file is opened here
        durability: Literal["submit", "check-back"] = "submit",
        strict: bool = True,
    ) -> None:
        """Begin a message; nothing is sent.

        Where seconds are asked for, a timedelta does as well.

        Arguments:
            server: the coordinator's address, which uses connections shared by this process, or a `TwoPhase` or
                `AsyncTwoPhase` with its own.
            gid: its name for ever, 1 to 128 bytes; made here by default.
            wait_result: submit answers only after one round of branch calls, and says whether all succeeded.
            delay: seconds between prepare, or the submit of a plain message, and the first branch call at the earliest.
            deliver_at: no branch is called before this time, which needs a zone; beside `delay` the later one counts.
            headers: go with every branch call and check-back.
            request_timeout: seconds for one branch call or check-back; 0 is the coordinator's default.
            retry_interval: seconds before the second try of a branch; grows from there. 0 is the default.
            timeout_to_fail: seconds between prepare and the first check-back; 0 is the default (35 s).
            attempts_max: rounds of branch calls that may fail in a row before the message is parked, for an operator to
                redrive; 0 is the default (for ever).
            concurrent: call the branches side by side instead of one after the other.
            open: branches may be added inside the local transaction, with values it produced.
            durability: "check-back" lets the coordinator acknowledge a submit and call the branches before the
                submit is on disk; after a crash the check-back finds it again. Only for messages with a check address.
            strict: judge a branch's answer by its status alone. False is dtm's rule, for branches written for dtm: a
                200 whose body contains FAILURE anywhere is a refusal, and one with ONGOING is called again.

        Raises:
            InvalidRequest, LimitExceeded, ConfigurationError: one of these cannot be, and the message names it.
        """
        ours = gid is None
        if gid is None:
            gid = fresh_gid(time.time_ns() // 1_000_000)
        else:
            validate_gid(gid)
        rounds_max = count("attempts_max", attempts_max, limits.ATTEMPTS_MAX)
        asked = (
            wait_result,
            delay,
            headers,
            request_timeout,
            retry_interval,
            timeout_to_fail,
            rounds_max,
            concurrent,
            open,
        )
        options = _USUAL
        if deliver_at is not None or durability != "submit" or not strict or any(asked):
            options = Options(
                concurrent=concurrent,
                wait_result=wait_result,
                delay_ms=_span_ms("delay", delay, limits.DELAY_MS_MAX),
                timeout_to_fail_ms=_span_ms("timeout_to_fail", timeout_to_fail, limits.TIMEOUT_TO_FAIL_MS_MAX),
                request_timeout_ms=_span_ms("request_timeout", request_timeout, limits.REQUEST_TIMEOUT_MS_MAX),
                retry_interval_ms=_span_ms("retry_interval", retry_interval, limits.RETRY_INTERVAL_MS_MAX),
                headers=checked_headers(headers) if headers else (),
                open=open,
                durability=_durability(durability),
                not_before_ms=time_ms("deliver_at", deliver_at) if deliver_at is not None else 0,
                attempts_max=rounds_max,
                strict=strict,
            )
        takes_bytes = speaks_grpc(server if isinstance(server, str) else getattr(server, "url", ""))
        self._draft = Draft(gid, options, gid_is_ours=ours, takes_bytes=takes_bytes)
        self._server = server

    def __repr__(self) -> str:
        return f"<Message {self.gid} {self.state.value}>"

    @property
    def gid(self) -> str:
        """The message's name; what to look for in the coordinator and in the barrier."""
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
            InvalidRequest: no address, no JSON, or prepared already without `open=True`.
            LimitExceeded: too many branches, or too large.
        """
        self._draft.add(url, payload)
        return self

    @overload
    def transaction(
        self, engine: Asyncpg, check: str, *, table: str | None = None, explicit_verdict: bool = True
    ) -> AsyncTransaction[AsyncpgHandle]: ...
    @overload
    def transaction(
        self, engine: Asynchronous[H], check: str, *, table: str | None = None, explicit_verdict: bool = True
    ) -> AsyncTransaction[H]: ...
    @overload
    def transaction(
        self, engine: str, check: str, *, table: str | None = None, explicit_verdict: bool = True
    ) -> Transaction[DjangoHandle]: ...
    @overload
    def transaction(
        self, engine: Blocking[H], check: str, *, table: str | None = None, explicit_verdict: bool = True
    ) -> Transaction[H]: ...
    def transaction(self, engine: Any, check: str, *, table: str | None = None, explicit_verdict: bool = True) -> Any:
        """Run the local transaction and the message as one.

        The order is: prepare, begin, *your statements*, commit, submit.

        Arguments:
            engine: a SQLAlchemy Engine, idle Connection or Session; an idle connection of sqlite3, psycopg or PyMySQL;
                a Django alias; with `async with` an AsyncEngine, AsyncConnection or AsyncSession, asyncpg's Pool
                or Connection, or an idle connection of psycopg or aiosqlite. This library begins and commits.
            check: the address of the check-back route that answers for this database.
            table: the barrier table, `name` or `schema.name`; by default that of the `TwoPhase`.
            explicit_verdict: False for a check-back route of another library that reads the same barrier table, such as
                a Go service of dtm's. Then whatever answers 200 at this address says "committed", a login page, too.

        Raises, when entered: NotPrepared and its kin, CheckBackCameFirst, OpenTransaction, AutocommitRefused,
            UnsupportedEngine, BarrierTableMissing: the business did not run.
        Raises, when left: the business' own exception, if it is rolled back for certain; CommittedDespiteError or
            Undecided from it otherwise; NotYetDelivered with wait_result. Nothing, if only submit did not get through.
        """

        def driver() -> SyncDriver:
            channel = channel_of(self._server, "async with message.transaction(…)")
            return channel.driver(flow.transaction(self._context(channel, table, explicit_verdict), check), engine)

        def adriver() -> AsyncDriver:
            channel = achannel_of(self._server)
            return channel.driver(flow.transaction(self._context(channel, table, explicit_verdict), check), engine)

        return LocalTransaction(engine, driver, adriver)

    @overload
    def do_and_submit(
        self,
        check: str,
        engine: Blocking[H],
        function: Callable[[H], T],
        *,
        table: str | None = None,
        explicit_verdict: bool = True,
    ) -> T: ...
    @overload
    def do_and_submit(
        self,
        check: str,
        engine: str,
        function: Callable[[DjangoHandle], T],
        *,
        table: str | None = None,
        explicit_verdict: bool = True,
    ) -> T: ...
    def do_and_submit(
        self,
        check: str,
        engine: Any,
        function: Callable[[Any], T],
        *,
        table: str | None = None,
        explicit_verdict: bool = True,
    ) -> T:
        """Run `transaction` around `function(connection)`, and return its result.

        It raises as `transaction`.

        Raises, too:
            FunctionRefused: `function` is async, or returned what waits to be awaited or iterated; nothing was
                committed.
        """
        require_blocking(function, "ado_and_submit")
        with self.transaction(engine, check, table=table, explicit_verdict=explicit_verdict) as connection:
            return require_ended(function(connection), "use `ado_and_submit`")

    @overload
    async def ado_and_submit(
        self,
        check: str,
        engine: Asyncpg,
        function: Callable[[AsyncpgHandle], Awaitable[T]],
        *,
        table: str | None = None,
        explicit_verdict: bool = True,
    ) -> T: ...
    @overload
    async def ado_and_submit(
        self,
        check: str,
        engine: Asynchronous[H],
        function: Callable[[H], Awaitable[T]],
        *,
        table: str | None = None,
        explicit_verdict: bool = True,
    ) -> T: ...
    async def ado_and_submit(
        self,
        check: str,
        engine: Any,
        function: Callable[[Any], Awaitable[T]],
        *,
        table: str | None = None,
        explicit_verdict: bool = True,
    ) -> T:
        """`do_and_submit` for an async engine; `function` is an `async def`."""
        async with self.transaction(engine, check, table=table, explicit_verdict=explicit_verdict) as connection:
            return await await_end(function(connection), "do_and_submit")

    def join(self, session: Any, check: str, *, table: str | None = None, explicit_verdict: bool = True) -> Self:
        """Put the message into the transaction of a SQLAlchemy Session.

        The Session has it open, or begins it with this call. The application continues and ends the transaction as
        usual. Its COMMIT is refused if the barrier row is not in it any more. After the COMMIT the message is
        submitted; after a rollback the barrier is asked.

        Arguments:
            session: a Session on an Engine, outside a savepoint.
            check, table, explicit_verdict: as `transaction`.

        Raises: what `transaction` raises when entered; `session.commit()` and `session.rollback()` then raise what it
            raises when left.
        """
        channel = channel_of(self._server, "await message.ajoin(…)")
        join(self._context(channel, table, explicit_verdict), check, session, channel.transport, channel.identities)
        return self

    async def ajoin(self, session: Any, check: str, *, table: str | None = None, explicit_verdict: bool = True) -> Self:
        """`join` for an AsyncSession."""
        channel = achannel_of(self._server)
        context = self._context(channel, table, explicit_verdict)
        await ajoin(context, check, session, channel.transport, channel.identities)
        return self

    def prepare(self, check: str, *, explicit_verdict: bool = True) -> Self:
        """Prepare manually, for a local transaction that this library does not run.

        Arguments:
            check: the check-back route's address.
            explicit_verdict: its answers carry the `X-Twophase-Verdict` header; False for a route of another library.

        Raises:
            InvalidRequest, LimitExceeded: `check` is no address, or a limit is passed.
            MessageUsedTwice: this Message belongs to a transaction, or is decided.
            CoordinatorUnreachable: not known whether it arrived; repeating is safe.
            ContentConflict, StateConflict, Overloaded, ShuttingDown, …: what the coordinator refuses with.
        """
        channel = channel_of(self._server, "await message.aprepare(…)")
        channel.driver(manual.prepare(self._context(channel), check, explicit_verdict=explicit_verdict)).start()
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
        channel = channel_of(self._server, "await message.asubmit(…)")
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
        channel = channel_of(self._server, "await message.aabort(…)")
        channel.driver(manual.abort(self._context(channel))).start()
        return self

    async def aprepare(self, check: str, *, explicit_verdict: bool = True) -> Self:
        """`prepare` for asyncio; raises the same."""
        channel = achannel_of(self._server)
        await channel.driver(manual.prepare(self._context(channel), check, explicit_verdict=explicit_verdict)).start()
        return self

    async def asubmit(self) -> Self:
        """`submit` for asyncio; raises the same."""
        channel = achannel_of(self._server)
        await channel.driver(manual.submit(self._context(channel))).start()
        return self

    async def aabort(self) -> Self:
        """`abort` for asyncio; raises the same."""
        channel = achannel_of(self._server)
        await channel.driver(manual.abort(self._context(channel))).start()
        return self

    def _context(
        self,
        channel: Channel,
        table: str | None = None,
        explicit_verdict: bool = True,  # noqa: FBT001, FBT002 -- handed on
    ) -> flow.FlowContext:
        return flow.FlowContext(
            self._draft,
            channel.patience,
            SURROUNDINGS,
            table or channel.barrier_table,
            channel.allow_unsafe_database,
            channel.encode,
            explicit_verdict,
        )


def _span_ms(name: str, span: float | timedelta, limit: limits.Limit) -> int:
    return milliseconds(name, span, limit) if span else 0


def _durability(word: str) -> Durability:
    if word not in DURABILITIES:
        raise InvalidRequest(f"durability is {word!r}; 'submit' or 'check-back' is needed.")
    return DURABILITIES[word]
