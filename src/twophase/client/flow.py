"""The producer's sequence, written once and sans-IO.

The sequence is: prepare, begin, barrier row, business, commit, submit. A flow is a generator of commands. A driver
(`sync`, `aio`) performs each one and sends its result in, or throws its error; nothing here waits, connects or reads
a clock. It keeps I1 and I2 on the producer's side by correctness rules 1 to 4: after anything but a clean commit,
only the barrier's own answer decides what the flow sends to the coordinator, and after a commit nothing is raised
that could make the caller repeat the business.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.producer import begin_producer, mark, remove_producer, verify_producer, write_branches
from twophase.client import fates
from twophase.client.draft import Draft, Progress, check_url_with, checked_url
from twophase.client.transport.exchange import Encode, FlowRuntime, Pause, RequestBounds, Send, exchange, not_prepared
from twophase.client.transport.wire import HttpAnswer, Operation, encode_request
from twophase.core import failpoint
from twophase.core.errors import (
    AutocommitRefused,
    ContraryDecision,
    CoordinatorUnreachable,
    DatabaseSwitched,
    Fate,
    InvalidRequest,
    NotYetDelivered,
    OpenTransaction,
    ServerFault,
    StoreError,
    TwophaseError,
    Unavailable,
    UnsupportedEngine,
)
from twophase.core.message import Branch, decode_branches, encode_branches
from twophase.core.message import Message as Content
from twophase.core.verdict import Verdict

if TYPE_CHECKING:
    from twophase.barrier.asking import CheckBackAnswer
    from twophase.barrier.dialect import Dialect
    from twophase.barrier.transaction import Steps

log = logging.getLogger("twophase.client")

TOKEN_BYTES = 16
_PREPARE = Operation.PREPARE
_SUBMIT = Operation.SUBMIT


class ReadIdentity(msgspec.Struct, frozen=True):
    """Read the barrier table's identity (rule 6), a str.

    The driver remembers it per engine for some minutes. It is refused when the database may forget a confirmed commit
    (rule 8), unless `allow_unsafe`.
    """

    table: str
    allow_unsafe: bool = False


class DistrustIdentity(msgspec.Struct, frozen=True):
    """Read each prepare's identity anew: the engine gives several databases."""

    table: str


class Begin(msgspec.Struct, frozen=True):
    """Open the local transaction; the result is its `Dialect`."""


class Rule(msgspec.Struct, frozen=True):
    """Perform one of the barrier's rules inside the local transaction."""

    steps: Any


class Business(msgspec.Struct, frozen=True):
    """Let the application work; the result is its exception, None without one."""


class Flush(msgspec.Struct, frozen=True):
    """Let a Session write its objects: errors then appear as the application's."""


class Commit(msgspec.Struct, frozen=True):
    """Look once more, and commit.

    From here on a cancellation waits until the flow has ended.

    Arguments:
        last: the rule that is performed behind all that the application could run before COMMIT.
    """

    last: Any


class Rollback(msgspec.Struct, frozen=True):
    """Roll back within a bounded time; never fails."""


class Close(msgspec.Struct, frozen=True):
    """Give the connection back; never fails."""


class AskBarrier(msgspec.Struct, frozen=True):
    """The check-back's insert-then-read; gives a `CheckBackAnswer`, never fails."""

    gid: str
    prepared_at_ms: int
    identity: str
    table: str


Command = (
    ReadIdentity
    | DistrustIdentity
    | Begin
    | Rule
    | Business
    | Flush
    | Commit
    | Rollback
    | Close
    | AskBarrier
    | Send
    | Pause
)
Flow = Generator[Command, Any, None]


class FlowContext(msgspec.Struct, frozen=True):
    """The context that every flow of one message needs."""

    draft: Draft
    bounds: RequestBounds
    runtime: FlowRuntime
    table: str = DEFAULT_TABLE
    allow_unsafe: bool = False
    encode: Encode = encode_request
    explicit_verdict: bool = True
    """The check-back route sends its verdict in twophase's own header."""

    def request(
        self, operation: Operation, branches: tuple[Branch, ...] | None = None
    ) -> Generator[Send | Pause, HttpAnswer, int]:
        """One exchange with the coordinator about this message."""
        content = self.draft.content(branches=branches)
        return exchange(content, operation, self.bounds, self.runtime, self._encode_once)

    def body(self, operation: Operation) -> bytes:
        """The body of a request about this message, for one that holds many."""
        return self._encode_once(self.draft.content(), operation)

    def _encode_once(self, content: Content, operation: Operation) -> bytes:
        """Encode a request's body once: a submit nearly always equals its prepare."""
        draft = self.draft
        encoded, draft.encoded = draft.encoded, None
        if operation is _SUBMIT and encoded is not None and encoded[0] == content:
            return encoded[1]
        body = self.encode(content, operation)
        if operation is _PREPARE:
            draft.encoded = (content, body)
        return body


class Opening(msgspec.Struct, frozen=True):
    """The result of `prepare` for the rest of the sequence."""

    identity: str
    token: str


def prepare_for_transaction(context: FlowContext, check_url: str) -> Generator[Command, Any, Opening]:
    """Read the identity and prepare; the business must not run when this raises.

    Raises:
        MessageUsedTwice, InvalidRequest, NotPrepared, and what the coordinator refuses with.
    """
    draft = context.draft
    checked_url("check", check_url)
    if not draft.branches and not draft.options.open:
        raise InvalidRequest("the message has no branch; add one, or take allow_late_branches=True.", gid=draft.gid)
    if draft.options.open and not context.explicit_verdict:
        raise InvalidRequest(
            "allow_late_branches=True excludes foreign_check=True, whose route does not name the branches added.",
            gid=draft.gid,
        )
    draft.take()  # not before: what is refused above may be corrected and tried again
    identity: str = yield ReadIdentity(context.table, context.allow_unsafe)
    draft.check_url = check_url_with(identity, check_url)
    if draft.options.explicit_verdict is not context.explicit_verdict:
        draft.options = msgspec.structs.replace(draft.options, explicit_verdict=context.explicit_verdict)
    draft.fixed = len(draft.branches)
    asked_ms = context.runtime.wall_ms()
    try:
        prepared_ms: int = yield from context.request(Operation.PREPARE)
    except (CoordinatorUnreachable, ServerFault) as error:
        raise not_prepared(error, draft.gid) from error.__cause__
    except (Unavailable, StoreError) as error:
        error.fate = Fate.NOT_STARTED
        raise
    # dtm's coordinator does not return the time; this clock before the request is the earliest possible one.
    draft.prepared_at_ms = prepared_ms or asked_ms
    if failpoint.ARMED:
        failpoint.reach("producer.after_prepare")
    return Opening(identity, context.runtime.random_bytes(TOKEN_BYTES).hex())


def transaction(context: FlowContext, check_url: str) -> Flow:
    """The whole sequence around a local transaction that the driver opens and ends.

    Ends without raising when the business' own exception is to propagate: it is rolled back for certain.

    Raises:
        NotPrepared, CheckBackCameFirst, BeginDeadlinePassed, …: the business did not run.
        CommittedDespiteError, Undecided: from the exception that was seen.
        ContraryDecision: committed, yet the coordinator holds the message failed.
        NotYetDelivered: committed; with wait_result, not all branches have succeeded.
    """
    opening = yield from prepare_for_transaction(context, check_url)
    attempt = Attempt(context, opening)
    try:
        yield from attempt.begin()
        seen: BaseException | None = yield Business()
        if seen is None:
            yield from attempt.before_commit()
            yield Commit(attempt.last_look())
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from attempt.failed(error)
        raise
    if seen is not None:
        yield from attempt.failed(seen, of_block=True)
        return
    yield Close()
    yield from attempt.committed()


class Attempt:
    """One attempt at a local transaction, for `transaction` and joined sessions."""

    dialect: Dialect

    def __init__(self, context: FlowContext, opening: Opening) -> None:
        """Nothing has begun."""
        self.context = context
        self.draft = context.draft
        self.opening = opening
        self.begun = False
        self.switched: DatabaseSwitched | None = None

    def begin(self) -> Flow:
        """Open the transaction and write the barrier row, its first statements."""
        draft = self.draft
        dialect = self.dialect = yield Begin()
        self.begun = True
        row = (self.context.table, draft.gid, self.opening.token, draft.prepared_at_ms)
        identity, allow_unsafe = self.opening.identity, self.context.allow_unsafe
        try:
            yield Rule(
                begin_producer(dialect, *row, identity=identity, allow_unsafe=allow_unsafe, is_open=draft.options.open)
            )
        except DatabaseSwitched as error:
            self.switched = error
            yield DistrustIdentity(self.context.table)
            raise
        if failpoint.ARMED:
            failpoint.reach("producer.after_barrier_row")
        draft.progress = Progress.IN_TRANSACTION

    def withdraw(self) -> Flow:
        """Take the row back, and abort the message.

        For a transaction that the application may commit without the message. Another process may have prepared a gid
        that was not made here, which is not aborted.
        """
        draft = self.draft
        yield Rule(remove_producer(self.dialect, self.context.table, draft.gid, self.opening.token))
        if draft.gid_is_ours:
            yield from self._abort()

    def before_commit(self) -> Flow:
        """Write the branches of an open message into the row, also an empty list."""
        draft = self.draft
        yield Flush()
        draft.progress = Progress.UNDECIDED  # a branch that a forgotten task adds from here on is refused
        added = draft.added_branches()
        if added:
            # What could not be submitted must not be committed: no check-back would get it through either.
            content = draft.content()
            draft.encoded = (content, self.context.encode(content, _SUBMIT))
        if draft.options.open:
            row = (self.context.table, draft.gid, self.opening.token)
            yield Rule(write_branches(self.dialect, *row, encode_branches(added)))

    def last_look(self) -> Steps[None]:
        """Verify right before COMMIT that the row is this transaction's (rule 2)."""
        yield from verify_producer(self.dialect, self.context.table, self.draft.gid, self.opening.token)
        if failpoint.ARMED:
            failpoint.reach("producer.before_commit")

    def look_and_mark_again(self) -> Flow:
        """Look, and put back the removed mark for the transaction's other message."""
        yield Rule(self.last_look())
        yield Rule(mark(self.dialect))

    def committed(self) -> Flow:
        """Submit after a clean commit; raise nothing that invites a repeat (rule 3)."""
        self.draft.progress = Progress.COMMITTED
        try:
            if failpoint.ARMED:
                failpoint.reach("producer.after_commit")
            yield from self._submit(tuple(self.draft.branches))
        except TwophaseError:
            raise
        except Exception as error:  # of a signal's handler, such as a worker's time limit
            raise fates.committed_despite(error, self.draft, None) from error

    def failed(self, seen: BaseException, *, of_block: bool = False) -> Flow:
        """Roll back, ask the barrier, and send its answer to the coordinator (rule 1).

        This is the way after anything but a clean commit. It returns when `seen` itself is to propagate.
        """
        if self.begun:
            yield Rollback()
            yield Close()
        yield from self.decide(seen, of_block=of_block)

    def decide(self, seen: BaseException, *, of_block: bool = False) -> Flow:
        """Ask the barrier about a transaction that has ended, and act on its answer.

        Arguments:
            of_block: raised by the application, perhaps about another message: its type tells nothing about this one.
        """
        draft = self.draft
        if seen is self.switched:
            # The row was rolled back before the business. Another process may have prepared a gid not made here.
            if draft.gid_is_ours:
                yield from self._abort()
            return
        if self.begun:
            draft.progress = Progress.UNDECIDED
        if not isinstance(seen, Exception):
            # Cancelled or interrupted: the caller does not want to wait for an answer (decision 5).
            log.warning("interrupted by %s; the check-back decides", type(seen).__name__, extra={"gid": draft.gid})
            return
        if isinstance(seen, OpenTransaction | AutocommitRefused | UnsupportedEngine) and not self.begun:
            return  # this connection cannot be asked either; the check-back will find no row and bar the message
        answer: CheckBackAnswer = yield AskBarrier(
            draft.gid, draft.prepared_at_ms, self.opening.identity, self.context.table
        )
        lost = fates.own_loss(seen, draft.gid, of_block=of_block)
        if answer.verdict is Verdict.ROLLED_BACK:
            draft.progress = Progress.ROLLED_BACK
            yield from self._abort()
            if lost is not None:
                raise fates.rolled_back(lost, draft.gid) from seen
        elif answer.verdict is Verdict.COMMITTED:
            yield from self._committed_despite(answer.body)
            raise fates.committed_despite(seen, draft, lost) from seen
        elif answer.branches_lost:
            draft.progress = Progress.BRANCHES_LOST
            raise fates.branches_lost(seen, draft) from seen
        elif self.begun or not draft.gid_is_ours:
            # A gid made here whose transaction never began cannot have committed: then the cause itself propagates.
            draft.progress = Progress.UNDECIDED
            raise fates.undecided(seen, draft.gid, answer.evidence) from seen

    def _committed_despite(self, body: bytes | None) -> Flow:
        draft = self.draft
        draft.progress = Progress.COMMITTED
        # The row is the truth: it may be that of another transaction for this gid, with other branches.
        added = decode_branches(body) if body else ()
        try:
            yield from self._submit(draft.fixed_branches() + added)
        except NotYetDelivered as error:
            log.info("%s", error.message, extra={"gid": draft.gid})
        except TwophaseError:
            raise
        except Exception as error:  # noqa: BLE001 -- of a signal's handler; the caller learns that it is committed
            log.warning("submit was interrupted by %s", type(error).__name__, extra={"gid": draft.gid})

    def _submit(self, branches: tuple[Branch, ...]) -> Flow:
        draft = self.draft
        if failpoint.ARMED:
            failpoint.reach("producer.before_submit")
        try:
            yield from self.context.request(Operation.SUBMIT, branches)
        except ContraryDecision as error:
            raise ContraryDecision(
                f"the local transaction is committed, but the coordinator holds the message failed: {error.message}",
                gid=draft.gid,
            ) from error
        except NotYetDelivered:
            draft.progress = Progress.SUBMITTED
            raise
        except TwophaseError as error:
            log.warning(
                "committed, but submit did not get through (%s); the check-back will deliver",
                error.message,
                extra={"gid": draft.gid},
            )
            if draft.options.wait_result:
                raise NotYetDelivered(
                    f"the local transaction is committed, but submit did not get through: {error.message}",
                    gid=draft.gid,
                ) from error
            return
        draft.progress = Progress.SUBMITTED
        if failpoint.ARMED:
            failpoint.reach("producer.after_submit")

    def _abort(self) -> Flow:
        try:
            yield from self.context.request(Operation.ABORT)
        except TwophaseError as error:
            log.warning(
                "rolled back, but abort did not get through (%s); the check-back will see it",
                error.message,
                extra={"gid": self.draft.gid},
            )
