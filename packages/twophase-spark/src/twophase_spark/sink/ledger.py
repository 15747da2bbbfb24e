"""The publisher's ledger: the messages of a batch, its decision, the open work.

Keeps the sink's promise by an order. A task records its messages, commits, and only then prepares them. When all tasks
have written, one transaction marks the runs of tasks that count and writes one row of the barrier: that row is the
batch's decision, unique and final, and the messages to submit afterwards are read from here. So after a crash the next
run finds all of it: nothing prepared is unknown here, and nothing is submitted that a decision does not name.

A message may stand in several batches, when a checkpoint was lost: published in one, it is published.
"""

from __future__ import annotations

import contextlib
import enum
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from twophase.barrier import check_back
from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import begin_producer, verify_producer
from twophase.barrier.transaction import perform
from twophase.core.errors import CheckBackCameFirst, PublishError, RowRefused
from twophase.core.verdict import Verdict
from twophase_spark.sink.database import bounded, run, run_many, speaking

PAGE_ROWS = 10_000
ROWS_SHOWN = 50


class Decision(enum.Enum):
    """The outcome of a batch."""

    OPEN = "undecided"
    PUBLISHED = "published"
    GIVEN_UP = "given up"


_OPEN = Decision.OPEN
_encode = msgspec.json.Encoder().encode
_OF_REASON = {"msg": Decision.PUBLISHED, "rollback": Decision.GIVEN_UP}


class Batch(msgspec.Struct, frozen=True):
    """A batch as Spark knows it; `number` is -1 for one `write` of a DataFrame."""

    group: str
    publisher: str
    query: str = ""
    number: int = -1


class ListedBatch(msgspec.Struct, frozen=True):
    """A batch as the ledger knows it.

    Times in milliseconds since 1970, None where it has not happened. `contrary`: how many of its messages had failed
    before, where that was read.
    """

    publisher: str
    group: str
    query: str
    number: int
    begun_ms: int
    messages: int
    published_ms: int | None
    given_up_ms: int | None
    decision: Decision
    contrary: int = 0


class Known(msgspec.Struct, frozen=True):
    """Messages of a task that stand in another batch.

    They are `published` there, or `given_up` for ever.
    """

    published: tuple[str, ...]
    given_up: tuple[str, ...]


class Ledger:
    """The ledger in one database, whose tables `database.install_ledger` made.

    All methods raise LedgerUnavailable when the database fails.

    Arguments:
        engine: of the database.
        statement_ms: the most time of a statement of `identity` and `verdict`; by default it is not bounded.
    """

    def __init__(self, engine: Engine, statement_ms: int | None = None) -> None:
        self._engine = engine
        self._statement_ms = statement_ms

    def begin(self, batch: Batch, key_columns: str) -> Decision:
        """Record the batch, unless the ledger has it; return its decision."""
        with speaking(), self._engine.begin() as connection:
            run(
                connection,
                "insert_batch",
                group_id=batch.group,
                publisher=batch.publisher,
                query_id=batch.query,
                batch_number=batch.number,
                key_columns=key_columns,
                begun_ms=_now_ms(),
            )
            return _decision(connection, batch.group)

    def begin_run(self, group: str) -> int:
        """Return the random number of one run of a task."""
        writer = secrets.randbits(62) + 1
        with speaking(), self._engine.begin() as connection:
            run(connection, "insert_writer", writer=writer, group_id=group)
        return writer

    def write_down(self, writer: int, gids: Sequence[str]) -> None:
        """Record messages, durably, before they are prepared.

        Raises:
            RowRefused: a key came twice.
        """
        try:
            with speaking(), self._engine.begin() as connection:
                if self._engine.dialect.name == "postgresql":
                    run(connection, "insert_messages_postgresql", writer=writer, gids=list(gids))
                else:
                    run_many(connection, "insert_message", [{"writer": writer, "gid": gid} for gid in gids])
        except IntegrityError:
            raise RowRefused("Two rows of one batch have the same key.") from None

    def known_elsewhere(self, writer: int, gids: Sequence[str]) -> Known:
        """Return which of a run's messages other batches have decided already."""
        with speaking(), self._engine.connect() as connection:
            if self._engine.dialect.name == "postgresql":
                rows = run(connection, "read_others_postgresql", writer=writer, gids=list(gids))
            else:
                rows = run(connection, "read_others", writer=writer, gids=_encode(gids).decode())
        return Known(
            tuple(gid for gid, published in rows if published), tuple(gid for gid, published in rows if not published)
        )

    def strike_out(self, writer: int, gids: Sequence[str]) -> None:
        """Remove messages from a run again: it has prepared none of them."""
        if gids:
            with speaking(), self._engine.begin() as connection:
                run_many(connection, "delete_message", [{"writer": writer, "gid": gid} for gid in gids])

    def key_columns(self, publisher: str) -> str | None:
        """Return the key columns of the publisher's latest batch; None without one."""
        with speaking(), self._engine.connect() as connection:
            rows = run(connection, "read_key_columns", publisher=publisher)
        return str(rows[0][0]) if rows else None

    def decide(self, group: str, winners: Sequence[int], messages: int) -> Decision:
        """Publish a batch: one transaction, one row of the barrier.

        An earlier decision stays.

        Arguments:
            winners: the runs of tasks that count.
            messages: how many they hold together.

        Raises:
            RowRefused: two tasks hold the same key; nothing is decided.
            PublishError: the ledger has lost messages of these runs; nothing is decided.
        """
        with speaking():
            transaction = open_transaction(self._engine)
            token = secrets.token_hex(16)
            try:
                perform(begin_producer(transaction.dialect, DEFAULT_TABLE, group, token, None), transaction)
                connection: Connection = transaction.handle
                run_many(connection, "set_won", [{"writer": writer, "group_id": group} for writer in winners])
                run(connection, "set_count", group_id=group, message_count=messages)
                found, repeated = run(connection, "count_decided", group_id=group)[0]
                if repeated:
                    raise RowRefused("Rows in different partitions of one batch have the same key.")
                if found != messages:
                    raise _lost(f"{found} of the {messages} messages that its tasks wrote", group)
                transaction.commit(verify_producer(transaction.dialect, DEFAULT_TABLE, group, token))
            except CheckBackCameFirst:
                transaction.rollback()
            except BaseException:
                transaction.rollback()
                raise
            else:
                return Decision.PUBLISHED
            finally:
                transaction.close()
            return self.decision(group)

    def decision(self, group: str) -> Decision:
        """Return the decision on a batch."""
        with speaking(), self._engine.connect() as connection:
            return _decision(connection, group)

    def require_published(self, group: str) -> None:
        """Refuse to go on from a decision that the ledger has lost since.

        Raises:
            PublishError: it has. The batch must come back, because its messages may not be submitted.
        """
        if self.decision(group) is not Decision.PUBLISHED:
            raise _lost("no decision any more", group)

    def unpublished(self, publisher: str) -> list[str]:
        """Return decided batches whose messages have not all been submitted: oldest first."""
        with speaking(), self._engine.connect() as connection:
            return [str(group) for (group,) in run(connection, "read_unpublished", publisher=publisher)]

    def messages(self, group: str) -> Iterator[list[str]]:
        """Yield the messages of a decided batch, page by page."""
        with speaking(), self._engine.connect() as connection:
            for (writer,) in run(connection, "read_winners", group_id=group):
                yield from _pages(connection, writer)

    def left_out(self, group: str, writers: Sequence[int]) -> Iterator[list[str]]:
        """Yield the messages of some runs of a batch that no decision names.

        A run that counts leaves none out.
        """
        with speaking(), self._engine.connect() as connection:
            counting = {writer for (writer,) in run(connection, "read_winners", group_id=group)}
            for writer in writers:
                for gids in _pages(connection, writer) if writer not in counting else ():
                    known = self.known_elsewhere(writer, gids)
                    left = set(gids).difference(known.published, known.given_up)
                    if left:
                        yield sorted(left)

    def set_published(self, group: str, contrary: int) -> None:
        """Note that all messages of a batch have been submitted.

        `contrary` is the number of those that had failed before.
        """
        with speaking(), self._engine.begin() as connection:
            run(connection, "set_published", group_id=group, now_ms=_now_ms(), contrary_count=contrary)

    def give_up(self, group: str) -> Decision:
        """Roll an undecided batch back, for ever.

        Of a published one, give up the messages that it prepared and did not publish.
        """
        answer = check_back(self._engine, group, lasting=True, lock_timeout=10)
        decision = {Verdict.COMMITTED: Decision.PUBLISHED, Verdict.ROLLED_BACK: Decision.GIVEN_UP}.get(answer.verdict)
        if decision is None:
            return Decision.OPEN
        with speaking(), self._engine.begin() as connection:
            run(connection, "set_given_up", group_id=group, now_ms=_now_ms())
        return decision

    def batches(self, publisher: str | None, rows_max: int = ROWS_SHOWN) -> list[ListedBatch]:
        """Return the latest batches of a publisher: undecided ones first.

        None stands for all publishers.
        """
        with speaking(), self._engine.connect() as connection:
            if publisher is None:
                return _listed(run(connection, "list_all_batches", rows_max=rows_max))
            return _listed(run(connection, "list_batches", publisher=publisher, rows_max=rows_max))

    def latest(self, publisher: str) -> ListedBatch | None:
        """Return the latest batch of a publisher; None without one."""
        with speaking(), self._engine.connect() as connection:
            return next(iter(_listed(run(connection, "read_latest", publisher=publisher))), None)

    def find(self, publisher: str, wanted: str, rows_max: int = ROWS_SHOWN) -> list[ListedBatch]:
        """Return a publisher's batches with this id or number, undecided ones first.

        They may be of any age.
        """
        with speaking(), self._engine.connect() as connection:
            return _listed(run(connection, "find_batches", publisher=publisher, wanted=wanted, rows_max=rows_max))

    def identity(self) -> str:
        """Return the identity of this database, which a check-back must give."""
        with self._looking() as connection:
            return str(run(connection, "read_identity")[0][0])

    def verdict(self, gid: str) -> Verdict:
        """Return the fate of one message, from all batches it stands in.

        Published in one of them: committed. Else, as long as one of them may still publish it, in progress. Rolled back
        only when each was given up. A message that never stood here was prepared by another producer: unknown.
        """
        with self._looking() as connection:
            rows = run(connection, "read_gid", gid=gid)
        if not rows:
            return Verdict.UNKNOWN
        if any(reason == "msg" and won for reason, won, _ in rows):
            return Verdict.COMMITTED
        if all(reason == "rollback" or (reason == "msg" and given_up) for reason, _, given_up in rows):
            return Verdict.ROLLED_BACK
        return Verdict.IN_PROGRESS

    @contextlib.contextmanager
    def _looking(self) -> Iterator[Connection]:
        """Open a connection whose statements are bounded."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(speaking())
            connection = stack.enter_context(self._engine.connect())
            if self._statement_ms is not None:
                stack.enter_context(bounded(connection, self._statement_ms))
            yield connection


def _listed(rows: Sequence[Any]) -> list[ListedBatch]:
    return [
        ListedBatch(
            publisher, group, query, number, begun_ms, count, done_ms, given_up_ms, _OF_REASON.get(reason, _OPEN), *more
        )
        for publisher, group, query, number, begun_ms, count, done_ms, given_up_ms, reason, *more in rows
    ]


def _lost(left: str, group: str) -> PublishError:
    return PublishError(
        f"The ledger has lost rows: of batch {group} it has {left}. It lost commits in a crash, or a standby without "
        "the newest ones took over.",
        remedy="Run it again: what is published is left out. Keep synchronous_commit on in the ledger's database, and "
        "let only a synchronous standby take over.",
    )


def _pages(connection: Connection, writer: int) -> Iterator[list[str]]:
    """Yield the messages of a run, page by page."""
    after = ""
    while rows := run(connection, "read_page", writer=writer, after=after, page_rows=PAGE_ROWS):
        after = rows[-1][0]
        yield [gid for (gid,) in rows]


def _decision(connection: Connection, group: str) -> Decision:
    rows = run(connection, "read_decision", group_id=group)
    return _OF_REASON[rows[0][0]] if rows else Decision.OPEN


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
