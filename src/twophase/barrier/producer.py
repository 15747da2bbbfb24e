"""The producer's side of the barrier (I1, I2).

It is one row that commits with the business, or not at all. The rules here are the first and the last statements of the
local transaction; the statements between belong to the application. They follow correctness rules 2, 6, 8, 11 and 12.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from twophase.barrier.dialect import MYSQL, Dialect
from twophase.barrier.durability import OF_THE_CONNECTION, require_durability
from twophase.barrier.fault import code_of, connection_ended, rows_unread
from twophase.barrier.first_look import refusal_of, require_table, table_missing
from twophase.barrier.primary import require_primary
from twophase.barrier.transaction import Row, Steps, say, text_of
from twophase.core.errors import (
    BarrierRowRefused,
    BeginDeadlinePassed,
    CheckBackCameFirst,
    DatabaseIsReplica,
    DatabaseSwitched,
    Fate,
    TransactionLost,
    Undecided,
)
from twophase.core.gid import validate_gid
from twophase.core.limits import BEGIN_DEADLINE_MS

IDLE_IN_TRANSACTION_MS = 300_000
IDLE_IN_TRANSACTION = f"{IDLE_IN_TRANSACTION_MS}ms"
"""The longest time that the producer's transaction may stay idle.

Then the database ends it: a dead client's lock must not delay the check-back for ever (rule 11).
"""

PRODUCER_BRANCH = "00"
PRODUCER_OP = "msg"
ROLLED_BACK_REASON = "rollback"
"""The reason of the row that a check-back writes."""


def read_identity(dialect: Dialect, table: str, *, allow_unsafe: bool = False) -> Steps[str]:
    """Read the random name that `install` gave this barrier table, before prepare.

    Arguments:
        allow_unsafe: take a database that may forget what it has confirmed (correctness rule 8).

    Raises:
        BarrierTableMissing: `install` has not been run here, or the table lacks our columns.
        BarrierTableUnusable: the table has no unique key, or a crash empties it.
        DatabaseIsReplica: it may be behind the database that decides.
        UnsafeDatabase: a crash of this database could take back a commit it has confirmed.
    """
    try:
        rows = yield say(dialect, "read_identity", table)
    except Exception as error:
        if dialect.is_missing_table(error):
            raise table_missing(table) from error
        raise
    if not rows or not rows[0][0]:
        raise table_missing(table)
    if rows[0][1]:
        raise DatabaseIsReplica(f"This database must not decide: {text_of(rows[0][1])}.")
    yield from require_primary(dialect)
    yield from require_table(dialect, table)
    if not allow_unsafe:
        yield from require_durability(dialect, table)
    return str(text_of(rows[0][0]))


def begin_settings(dialect: Dialect) -> Steps[None]:
    """Set a durable commit, and an end for a dead client, for the transaction.

    Where the statement that writes the row can set it along the way, there is no statement of its own.
    """
    if "settings" in dialect.statements:
        yield say(dialect, "settings", idle_timeout_s=IDLE_IN_TRANSACTION_MS // 1000)


def mark(dialect: Dialect) -> Steps[None]:
    """Set the mark that disappears with the transaction.

    It is set where the database cannot distinguish its transactions.
    """
    if "mark" in dialect.statements:
        yield say(dialect, "mark")


def release_mark(dialect: Dialect) -> Steps[None]:
    """Release it; fails when the transaction that set the mark has ended."""
    if "release_mark" in dialect.statements:
        yield say(dialect, "release_mark")


def begin_producer(
    dialect: Dialect,
    table: str,
    gid: str,
    token: str,
    prepared_at_ms: int | None,
    *,
    identity: str | None = None,
    allow_unsafe: bool = False,
    is_open: bool = False,
) -> Steps[None]:
    """Write the barrier row, then read the database's clock.

    In this order, because a reader of the clock could be held up between look and row, and the row's death by
    cleaning is counted from a begin within the deadline.

    Arguments:
        gid: the message.
        token: random, at most 64 characters, new for each begin; `verify_producer` wants it again.
        prepared_at_ms: what prepare answered, milliseconds since 1970 by the coordinator's store; None when no
            prepare gave one, which leaves the deadline unchecked.
        identity: the table's name that stands in the check address; None leaves it uncompared.
        allow_unsafe: as `read_identity`, where it is this very connection that decides.
        is_open: branches may be added inside the transaction; until `write_branches` the row says that they lack.

    Raises:
        UnsafeDatabase: a crash could take back what this connection commits.
        CheckBackCameFirst: the row is there already. With the fate "rolled back" a check-back wrote it; with
            "undecided" another transaction for the same gid did: ask the barrier.
        BeginDeadlinePassed: prepared more than an hour ago.
        DatabaseSwitched: this connection writes to another table than was named at prepare.
        BarrierTableMissing: `install` has not been run here.
        BarrierTableUnusable: the table has no unique key for the row.
        BarrierRowRefused: another key than the message's is taken, or a trigger drops the row.
    """
    validate_gid(gid)
    if not allow_unsafe and OF_THE_CONNECTION in dialect.statements:
        yield from require_durability(dialect, table)
    yield from begin_settings(dialect)
    statement = "insert_open_producer" if is_open else "insert_producer"
    rows = yield from _insert_row(dialect, statement, table, gid, token, prepared_at_ms)
    yield from mark(dialect)
    if "read_clock" in dialect.statements:
        rows = yield say(dialect, "read_clock", table)
    assert rows, "the database answers what time it is"
    if identity is not None and rows[0][1] != identity and text_of(rows[0][1]) != identity:
        raise DatabaseSwitched(gid=gid)
    late_ms = int(rows[0][0]) - prepared_at_ms if prepared_at_ms is not None else 0
    if late_ms > BEGIN_DEADLINE_MS.value:
        raise BeginDeadlinePassed(
            f"The transaction begins {late_ms} ms after prepare, at most {BEGIN_DEADLINE_MS.value} are allowed.",
            gid=gid,
        )


def _insert_row(
    dialect: Dialect,
    statement: str,
    table: str,
    gid: str,
    token: str,
    prepared_at_ms: int | None,
    *,
    again: bool = False,
) -> Steps[Sequence[Row]]:
    """Write the producer's row.

    It raises CheckBackCameFirst when the message has a row, and the errors that `refusal_of` names. `again`: the second
    and last try, after one that neither wrote a row nor found one.
    """
    try:
        rows = yield say(
            dialect,
            statement,
            table,
            gid=gid,
            token=token,
            prepared_at=prepared_at_ms,
            idle_timeout=IDLE_IN_TRANSACTION,
        )
    except Exception as error:
        if dialect.is_duplicate(error):
            taken = (
                (yield say(dialect, "read_taken_key", table, gid=gid)) if "read_taken_key" in dialect.statements else ()
            )
            for row in taken:
                if text_of(row[0]) == gid:
                    raise _barred(gid, text_of(row[1])) from error
        refusal = refusal_of(dialect, error, table, gid)
        if refusal is not None:
            raise refusal from error
        raise
    if not rows and "read_producer" in dialect.statements:
        # Read, never inferred: a trigger may have dropped the row, or a cleaner removed the one that stood there.
        for row in (yield say(dialect, "read_producer", table, gid=gid)):
            raise _barred(gid, text_of(row[1]))
        if again:
            raise BarrierRowRefused(gid=gid)
        rows = yield from _insert_row(dialect, statement, table, gid, token, prepared_at_ms, again=True)
    return rows


def _barred(gid: str, reason: str) -> CheckBackCameFirst:
    """Return the error of a begin that met a row of its message.

    Only a check-back's row says that nothing is committed. Of any other one, the barrier must be asked: this
    transaction may have written it, and a commit that is visible need not be durable (rule 8).
    """
    if reason == ROLLED_BACK_REASON:
        return CheckBackCameFirst(gid=gid)
    error = CheckBackCameFirst(
        "Another transaction for this gid has written its barrier row, so this one can no longer begin.",
        gid=gid,
        remedy=Undecided.remedy,
    )
    error.fate = Fate.UNDECIDED
    return error


def verify_producer(dialect: Dialect, table: str, gid: str, token: str) -> Steps[None]:
    """Verify before COMMIT that this transaction wrote the row and still has it.

    Raises:
        TransactionLost: no, or the database could not even say. Roll back, then ask the barrier.
    """
    yield from verify_row(dialect, table, gid, PRODUCER_BRANCH, PRODUCER_OP, token)


def verify_row(
    dialect: Dialect,
    table: str,
    gid: str,
    branch_id: str,
    op: str,
    token: str,
    *,
    looks: tuple[str, ...] = ("verify",),
) -> Steps[None]:
    """Verify any row of the barrier by its last statements.

    The last of them returns it. It raises TransactionLost.
    """
    rows: object = ()
    try:
        yield from release_mark(dialect)
        for statement in looks:
            rows = yield say(dialect, statement, table, gid=gid, branch_id=branch_id, op=op, token=token)
    except Exception as error:
        if dialect.is_denied(error):
            raise TransactionLost(
                f"The last look at the barrier row is not allowed ({code_of(error)}).",
                gid=gid,
                remedy="Grant select, insert and update on the barrier table to the user of this transaction.",
            ) from error
        if rows_unread(error):
            raise TransactionLost(
                f"Rows that a statement of the block streams were not read ({code_of(error)}).",
                gid=gid,
                remedy="Read a streamed result to its end, or close it, inside the block.",
            ) from error
        if connection_ended(error):
            raise TransactionLost(
                f"The connection to the database ended before COMMIT ({code_of(error)}).",
                gid=gid,
                remedy="Look for the reason in the database's log, or in a pooler or network in between.",
            ) from error
        raise TransactionLost(gid=gid) from error
    if not rows:
        raise TransactionLost(gid=gid)


def write_branches(dialect: Dialect, table: str, gid: str, token: str, body: bytes) -> Steps[None]:
    """Put branches added inside the block into the barrier row (decision 1).

    A check-back can then answer them.

    Arguments:
        body: what `core.message.encode_branches` made, of no branch too: only this row is a verdict.
    """
    assert body, "an empty body says that the branches are not written"
    values = {"body_text": b64encode(body).decode()} if dialect is MYSQL else {"body": body}
    yield say(dialect, "write_branches", table, gid=gid, token=token, **values)


def remove_producer(dialect: Dialect, table: str, gid: str, token: str) -> Steps[None]:
    """Remove the producer's row from a transaction.

    The transaction is to continue without the message.
    """
    yield say(dialect, "remove_producer", table, gid=gid, token=token)
