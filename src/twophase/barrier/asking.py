"""The producer's answer to "did it commit?" (I1, I2, I4).

It inserts, then reads, and answers only what is durable. By *writing* the rollback row, the check-back bars a
transaction that has not begun, and waits for one that has; a mere look could do neither. Correctness rules 6, 7, 8 and
13.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE, HORIZON, Dialect, validate_table
from twophase.barrier.fault import Fault, code_of, fault_of
from twophase.barrier.first_look import look_once
from twophase.barrier.open import aopen_transaction, ask_engine, open_transaction
from twophase.barrier.primary import require_primary
from twophase.barrier.producer import ROLLED_BACK_REASON, mark, release_mark
from twophase.barrier.shelter import give_back
from twophase.barrier.transaction import Row, Steps, aperform, perform, say, text_of
from twophase.core import failpoint
from twophase.core.errors import (
    AutocommitRefused,
    BarrierError,
    BarrierTableUnusable,
    BranchesLost,
    ConfigurationError,
    DatabaseIsReplica,
    TransactionLost,
    WrongDatabase,
)
from twophase.core.gid import validate_gid
from twophase.core.spans import as_ms
from twophase.core.verdict import Verdict

LOCK_TIMEOUT_S = 1.5
LOCK_TIMEOUT_MS = as_ms(LOCK_TIMEOUT_S)
"""The longest wait for a lock, below the coordinator's request timeout (3 s).

The coordinator must receive "in progress" before it stops waiting.
"""

CLOCK_SKEW_MS = 300_000
"""The allowed difference of two clocks: the store's and the business database's.

The store is the coordinator's.
"""

_COMMITTED_REASON = "msg"

_BRANCHES_LOST = (
    f"{BranchesLost.code}: the local transaction is committed, but its block ended it before the branches added there "
    "(allow_late_branches=True) were written. They are not known here, so none is called: call them manually, then "
    "stop the message"
)

_log = logging.getLogger("twophase.barrier")


class CheckBackQuestion(msgspec.Struct, frozen=True):
    """The coordinator's question.

    `prepared_at_ms` and `identity` are absent (None) when the coordinator does not send them. `lasting`: a row of this
    gid is written without a time of prepare, so that no cleaning ever removes it.
    """

    gid: str
    prepared_at_ms: int | None = None
    identity: str | None = None
    lasting: bool = False


class CheckBackAnswer(msgspec.Struct, frozen=True):
    """The verdict, its reason, and the branches added inside the transaction.

    The branches are encoded.
    """

    verdict: Verdict
    body: bytes | None = None
    evidence: str = ""
    branches_lost: bool = False
    """The row of a committed transaction lacks the branches added in it.

    There is no verdict, for ever.
    """

    @property
    def decided(self) -> bool:
        """True when this is a verdict for ever."""
        return self.verdict in (Verdict.COMMITTED, Verdict.ROLLED_BACK)

    @property
    def reason(self) -> str:
        """The reason of the row that this answer rests on; empty where it rests on none."""
        if self.branches_lost or self.verdict is Verdict.COMMITTED:
            return _COMMITTED_REASON
        return ROLLED_BACK_REASON if self.verdict is Verdict.ROLLED_BACK else ""


def check_back_rule(
    dialect: Dialect, table: str, question: CheckBackQuestion, token: str, *, lock_timeout_ms: int = LOCK_TIMEOUT_MS
) -> Steps[CheckBackAnswer]:
    """Insert the rollback row, read the existing row, the identity and the horizon.

    The caller commits an answer that rests on a row before it sends it, and rolls back any other.

    Arguments:
        token: random, new for each question; shows whether the existing row is the one written here.
        lock_timeout_ms: how long to wait for the transaction that holds the row.
    """
    validate_gid(question.gid)
    yield from require_primary(dialect)
    bounds = yield from begin_bounded(dialect, lock_timeout_ms)
    if failpoint.ARMED:
        failpoint.reach("check_back.before_insert")
    rows = yield from write_row(dialect, table, question.gid, token, question.prepared_at_ms, bounds)
    if failpoint.ARMED:
        failpoint.reach("check_back.after_insert")
    meta = yield say(dialect, "read_meta", table)
    yield from mark(dialect)
    return _judge(question, token, rows, {str(text_of(name)): str(text_of(value)) for name, value in meta})


def write_row(
    dialect: Dialect, table: str, gid: str, token: str, prepared_at_ms: int | None, bounds: dict[str, Any]
) -> Steps[Sequence[Row]]:
    """Write the rollback row, or the row that is there already; return it."""
    rows = yield say(dialect, "insert_check_back", table, gid=gid, token=token, prepared_at=prepared_at_ms, **bounds)
    if "read_check_back" in dialect.statements:
        rows = yield say(dialect, "read_check_back", table, gid=gid)
    return rows


def bounded_ms(lock_timeout: float | timedelta) -> int:
    """Return the longest wait for a lock in milliseconds.

    Raises:
        ConfigurationError: it is less than one, which PostgreSQL takes for no bound at all.
    """
    lock_timeout_ms = as_ms(lock_timeout)
    if lock_timeout_ms < 1:
        raise ConfigurationError(f"lock_timeout: {lock_timeout} is too short; the least is a millisecond.")
    return lock_timeout_ms


def bounds_of(lock_timeout_ms: int) -> dict[str, Any]:
    """Return the bound on waiting in the words of each database's statements."""
    return {
        "lock_timeout": f"{lock_timeout_ms}ms",
        "statement_timeout": f"{lock_timeout_ms}ms",
        "lock_timeout_s": max(1, lock_timeout_ms // 1000),
        "lock_timeout_fraction": lock_timeout_ms / 1000,
    }


def begin_bounded(dialect: Dialect, lock_timeout_ms: int) -> Steps[dict[str, Any]]:
    """Begin a transaction in READ COMMITTED with bounded waits; return the bounds.

    These are its first statements. A MySQL server that logs statements alone takes writes only in REPEATABLE READ.
    """
    bounds = bounds_of(lock_timeout_ms)
    if "check_back_isolation_before_settings" in dialect.statements:
        yield say(dialect, "check_back_isolation_before_settings")
    if "check_back_settings" in dialect.statements:
        yield say(dialect, "check_back_settings", **bounds)
    if "check_back_isolation_after_settings" in dialect.statements:
        yield say(dialect, "check_back_isolation_after_settings")
    return bounds


def _judge(question: CheckBackQuestion, token: str, rows: Row, meta: dict[str, str]) -> CheckBackAnswer:
    if "unusable" in meta:
        return _unknown(f"{BarrierTableUnusable.code}: the barrier table cannot decide: {meta['unusable']}")
    if "identity" not in meta:
        return _unknown("no complete barrier table here: run `twophase barrier install URL`")
    if question.identity is not None and meta["identity"] != question.identity:
        return _unknown(f"{WrongDatabase.code}: this is not the barrier table that the producer wrote to")
    if "replica" in meta:
        return _unknown(f"{DatabaseIsReplica.code}: this database must not decide: {meta['replica']}")
    if not rows or text_of(rows[0][0]) != question.gid:
        return _unknown("the insert left no row of this gid")
    reason, written_by, body = text_of(rows[0][1]), text_of(rows[0][2]), rows[0][3]
    if reason == _COMMITTED_REASON and body is not None and not len(body):
        return CheckBackAnswer(Verdict.UNKNOWN, evidence=_BRANCHES_LOST, branches_lost=True)
    if reason == _COMMITTED_REASON:
        return CheckBackAnswer(Verdict.COMMITTED, bytes(body) if body is not None else None, "the barrier row stands")
    if reason != ROLLED_BACK_REASON:
        return _unknown("the row's reason is neither 'msg' nor 'rollback'")
    if written_by == token and not question.lasting and _cleaned(question.prepared_at_ms, meta):
        # A row may have existed here and been cleaned: its absence now proves nothing (rule 13).
        return _unknown("prepared before the horizon below which barrier rows have been cleaned")
    return CheckBackAnswer(Verdict.ROLLED_BACK, evidence="the check-back's row stands")


def _stands(dialect: Dialect, table: str, gid: str, reason: str) -> Steps[None]:
    """Read the row's reason once more, right before COMMIT.

    It is read in the transaction that wrote it.

    Raises:
        TransactionLost: the transaction has ended, or the reason is not that of the answer to be sent.
    """
    try:
        yield from release_mark(dialect)
        rows = yield say(dialect, "read_decision", table, gid=gid)
    except Exception as error:
        raise TransactionLost(gid=gid) from error
    if not rows or text_of(rows[0][0]) != reason:
        raise TransactionLost(gid=gid)


def _cleaned(prepared_at_ms: int | None, meta: dict[str, str]) -> bool:
    horizon = meta.get(HORIZON)
    if horizon is None:
        return False
    return prepared_at_ms is None or prepared_at_ms < int(horizon) + CLOCK_SKEW_MS


def _unknown(evidence: str) -> CheckBackAnswer:
    return CheckBackAnswer(Verdict.UNKNOWN, evidence=evidence)


def _answer_for(error: Exception, gid: str) -> CheckBackAnswer:
    """Return the answer to a failure of the database or the connection: no verdict."""
    fault, code = fault_of(error), code_of(error)
    if fault is Fault.BUSY:
        return CheckBackAnswer(Verdict.IN_PROGRESS, evidence=f"the row is held ({code})")
    _log.error("check-back of %s cannot be answered: %s", gid, code)
    if isinstance(error, BarrierError | AutocommitRefused):  # of the engine, not of the database
        return _unknown(f"{error.code}: {error.message}")
    if fault is Fault.TABLE_UNUSABLE:
        return _unknown(
            f"{BarrierTableUnusable.code}: the barrier table has no unique key, or no transactions ({code})"
        )
    if fault is Fault.TABLE_MISSING:
        return _unknown(f"no complete barrier table here ({code}): run `twophase barrier install URL`")
    return _unknown(f"the database failed ({code})")


def check_back(
    engine: Any,
    gid: str,
    *,
    prepared_at_ms: int | None = None,
    identity: str | None = None,
    lasting: bool = False,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
) -> CheckBackAnswer:
    """Ask the barrier about `gid`, in a separate transaction.

    Arguments:
        engine: whatever `open_transaction` takes.
        prepared_at_ms: milliseconds since 1970, as prepare answered.
        identity: the name of the database that the producer wrote to; None leaves it unchecked.
        lasting: a row of this gid has no time of prepare and so is never cleaned; then an absent one was never there.
        lock_timeout: the longest wait for a lock, in seconds or as a timedelta.

    Returns:
        Committed or rolled back are durable and for ever; in progress when a transaction holds the row or the database
        is busy; unknown after any other failure, which is logged.

    Raises:
        InvalidRequest: the gid cannot be one.
        ConfigurationError: the table's name cannot be one, or `lock_timeout` is less than a millisecond.

    >>> import sqlite3; from twophase.barrier import install
    >>> bank = sqlite3.connect(":memory:"); _ = install(bank)
    >>> check_back(bank, "never-began").verdict
    <Verdict.ROLLED_BACK: 'rolled_back'>
    """
    assert not lasting or prepared_at_ms is None, "a row with a time of prepare is cleaned some day"
    question = CheckBackQuestion(validate_gid(gid), prepared_at_ms, identity, lasting)
    validate_table(table)
    lock_timeout_ms = bounded_ms(lock_timeout)
    try:
        transaction = open_transaction(engine, lock_timeout_ms=lock_timeout_ms)
        try:
            rule = check_back_rule(
                transaction.dialect, table, question, secrets.token_hex(16), lock_timeout_ms=lock_timeout_ms
            )
            answer = perform(rule, transaction)
            if answer.reason:
                perform(look_once(ask_engine(engine), transaction.dialect, table), transaction)
                transaction.commit(_stands(transaction.dialect, table, question.gid, answer.reason))
        finally:
            transaction.rollback()
            transaction.close()
    except Exception as error:  # noqa: BLE001 -- anything unexpected is no verdict; its code is logged
        return _answer_for(error, gid)
    return answer


async def acheck_back(
    engine: Any,
    gid: str,
    *,
    prepared_at_ms: int | None = None,
    identity: str | None = None,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
) -> CheckBackAnswer:
    """`check_back` for an async engine.

    asyncpg's Pool gives a connection within `lock_timeout`, or the answer is unknown.
    """
    question = CheckBackQuestion(validate_gid(gid), prepared_at_ms, identity)
    validate_table(table)
    lock_timeout_ms = bounded_ms(lock_timeout)
    try:
        transaction = await aopen_transaction(engine, lock_timeout_ms=lock_timeout_ms, pool_timeout_ms=lock_timeout_ms)
        try:
            rule = check_back_rule(
                transaction.dialect, table, question, secrets.token_hex(16), lock_timeout_ms=lock_timeout_ms
            )
            answer = await aperform(rule, transaction)
            if answer.reason:
                await aperform(look_once(ask_engine(engine), transaction.dialect, table), transaction)
                await transaction.commit(_stands(transaction.dialect, table, question.gid, answer.reason))
        finally:
            await give_back(transaction)
    except Exception as error:  # noqa: BLE001 -- anything unexpected is no verdict; its code is logged
        return _answer_for(error, gid)
    return answer
