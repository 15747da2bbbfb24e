"""The receiving side of the barrier: a branch takes effect at most once (I6).

This holds however often the branch is called. `once` owns the transaction: row and effect commit together, and the
reply that ends the coordinator's calls follows that commit, never precedes it (decision 6).

"Done before" is read from the row, never inferred from an error, and answered only after a durable write of that row.
The row's reason is 'unfinished' until the last statement of the transaction: a commit inside the block stays visible as
one.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from twophase.barrier.asking import LOCK_TIMEOUT_MS, begin_bounded, bounds_of
from twophase.barrier.beside import Block, watched
from twophase.barrier.dialect import DEFAULT_TABLE, Dialect
from twophase.barrier.effect import await_end, require_accepted, require_blocking, require_ended, require_no_event_loop
from twophase.barrier.fault import described, timed_out
from twophase.barrier.first_look import forgetful_table, look_once, refusal_of
from twophase.barrier.open import aopen_transaction, ask_engine, open_transaction
from twophase.barrier.parameters import one_value
from twophase.barrier.producer import (
    IDLE_IN_TRANSACTION,
    begin_settings,
    mark,
    verify_row,
)
from twophase.barrier.shelter import give_back
from twophase.barrier.transaction import Steps, aperform, perform, say, text_of
from twophase.core import failpoint
from twophase.core.errors import BarrierRowRefused, BranchSpoilt, InvalidRequest, UnsupportedType
from twophase.core.gid import validate_gid

if TYPE_CHECKING:
    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, Blocking, DjangoHandle, H

R = TypeVar("R")

_UNFINISHED = "unfinished"
"""The reason of a row whose transaction has not reached its last statement.

It is durable only if the block ended the transaction.
"""


class BranchRefused(Exception):
    """The error that a branch raises to answer 409: not possible now.

    The branch is rolled back, and called again later. Its text goes into the answer: `raise BranchRefused("no stock")`
    is what `twophase explain` then shows.
    """


class BranchOngoing(Exception):
    """The error that a branch raises to answer 425: not done yet.

    The branch is rolled back, and called again soon. Its text goes into the answer.
    """


class RowTaken(Exception):  # an internal signal of the rules
    """The row could not be inserted, because its key or another one is taken.

    `confirm_branch` reads which.
    """


class BranchCall(msgspec.Struct, frozen=True):
    """Which branch of which message is called."""

    gid: str
    branch_id: str
    op: str = "action"


def read_gid(parameters: Mapping[str, Any]) -> str:
    """Return the message that a coordinator's request names.

    Raises:
        InvalidRequest: none, as when a person opens the address, two, or an impossible one.
    """
    gid = one_value(parameters, "gid")
    if not gid:
        raise InvalidRequest(
            "gid is missing: this route is for the coordinator: its query string needs gid, branch_id, op, trans_type."
        )
    return validate_gid(gid)


def require_message(parameters: Mapping[str, Any]) -> None:
    """Refuse what is no message; a request without `trans_type` is taken for one.

    Raises:
        UnsupportedType: another transaction. InvalidRequest: two types.
    """
    if one_value(parameters, "trans_type") not in {None, "msg"}:
        raise UnsupportedType("trans_type must be 'msg'.")


def read_call(parameters: Mapping[str, Any]) -> BranchCall:
    """Return the branch that a request's query parameters name (dtm-wire §3.1).

    Raises:
        UnsupportedType: `trans_type` is not `msg`.
        InvalidRequest: `gid`, `branch_id` or `op` is missing or impossible, or one is there twice.

    >>> read_call({"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"})
    BranchCall(gid='g', branch_id='01', op='action')
    """
    require_message(parameters)
    gid = read_gid(parameters)
    branch_id, op = one_value(parameters, "branch_id") or "", one_value(parameters, "op")
    if not (0 < len(branch_id) <= 128 and branch_id.isascii() and branch_id.isprintable()) or " " in branch_id:
        raise InvalidRequest("branch_id must be 1 to 128 printable ASCII characters.", gid=gid)
    if op not in {None, "action"}:
        raise InvalidRequest("op must be 'action': a message has no other.", gid=gid)
    return BranchCall(gid, branch_id)


def begin_branch(dialect: Dialect, table: str, call: BranchCall, token: str) -> Steps[None]:
    """First statements of a branch's transaction.

    Raises:
        RowTaken, BarrierError: there is a row, or there can be none.
        BranchOngoing: a timeout ended the wait for another call.
    """
    yield from begin_settings(dialect)
    try:
        rows = yield say(
            dialect,
            "insert_branch",
            table,
            gid=call.gid,
            branch_id=call.branch_id,
            op=call.op,
            token=token,
            idle_timeout=IDLE_IN_TRANSACTION,
        )
        if not rows and "read_taken_key" not in dialect.statements:
            raise RowTaken
        if rows and not rows[0][0]:
            raise forgetful_table(table)
        yield from mark(dialect)
    except Exception as error:
        if dialect.is_duplicate(error) and "read_taken_key" in dialect.statements:
            raise RowTaken from error
        refusal = refusal_of(dialect, error, table, call.gid)
        if refusal is not None:
            raise refusal from error
        _raise_ongoing(error)
        raise


def verify_branch(dialect: Dialect, table: str, call: BranchCall, token: str) -> Steps[None]:
    """Finish the row as the last statement before COMMIT; raises TransactionLost."""
    looks = ("finish_branch", "verify") if "read_branch" in dialect.statements else ("finish_branch",)
    yield from verify_row(dialect, table, call.gid, call.branch_id, call.op, token, looks=looks)


def confirm_branch(dialect: Dialect, table: str, call: BranchCall) -> Steps[None]:
    """Write the existing row, and read it.

    These are the last statements before the COMMIT that makes it durable.

    Raises:
        BranchSpoilt: the transaction that wrote the row was ended inside its block.
        BarrierRowRefused: no row of this branch stands, so it has not taken effect.
        BranchOngoing: a timeout ended the wait for a transaction that holds the row.
    """
    bounds = bounds_of(LOCK_TIMEOUT_MS)
    key = {"gid": call.gid, "branch_id": call.branch_id, "op": call.op}
    try:
        rows = yield say(dialect, "confirm_branch", table, **key, **bounds)
        if "read_branch" in dialect.statements:
            rows = yield say(dialect, "read_branch", table, **key)
    except Exception as error:
        _raise_ongoing(error)
        raise
    # Compared here too: a collation may treat another text as the same.
    if not rows or (text_of(rows[0][0]), text_of(rows[0][1])) != (call.gid, call.branch_id):
        raise BarrierRowRefused(gid=call.gid)
    if text_of(rows[0][2]) == _UNFINISHED:
        raise BranchSpoilt(
            f"An earlier call of branch {call.branch_id} ended its transaction inside the block, so part of its effect "
            "may be committed and the rest is missing.",
            gid=call.gid,
        )


def _raise_ongoing(error: Exception) -> None:
    """Raise BranchOngoing where a timeout ended one of our statements.

    Such a statement waits only for another transaction. The function's own statement that meets one is an error.
    """
    if timed_out(error):
        raise BranchOngoing(f"another call of this branch has not ended: {described(error)}") from error


def _reach(name: str) -> None:
    if failpoint.ARMED:
        failpoint.reach(name)


@overload
def once(
    engine: Blocking[H], request: Mapping[str, Any], function: Callable[[H], R], *, table: str = DEFAULT_TABLE
) -> R | None: ...
@overload
def once(
    engine: str, request: Mapping[str, Any], function: Callable[[DjangoHandle], R], *, table: str = DEFAULT_TABLE
) -> R | None: ...
def once(
    engine: Any, request: Mapping[str, Any], function: Callable[[Any], R], *, table: str = DEFAULT_TABLE
) -> R | None:
    """Run `function` in a transaction, if this branch has not taken effect yet.

    Arguments:
        engine: whatever `open_transaction` takes.
        request: the query parameters of the coordinator's call: gid, branch_id, op, trans_type.
        function: the effect; it is given what it executes its statements on, and must not end the transaction.

    Returns:
        What `function` returned, committed; None when the branch had taken effect before, durably. The value is the
        caller's: `(body, 409)` is a tuple like any other, and is committed. To refuse, raise `BranchRefused`.

    Raises:
        InvalidRequest: the parameters name no branch.
        BranchSpoilt: an earlier call ended its transaction inside the block; a person must look.
        BarrierRowRefused: another key than this branch's is taken; nothing stays.
        BarrierTableMissing, BarrierTableUnusable: the barrier is not installed, or cannot tell a repeated call.
        FunctionRefused: `function` is async, or returned what waits to be awaited or iterated, or an HTTP answer of
            status 400 or more; nothing stays.
        EventLoopBlocked: an event loop runs in this thread; `aonce` is for it, or a thread.
        BranchOngoing: a timeout of the database ended the wait for another call of this branch.
        TransactionLost: the block ended the transaction itself; nothing may be confirmed.
        Whatever `function` raised, after the rollback.

    >>> import sqlite3; from twophase.barrier import install
    >>> bank = sqlite3.connect(":memory:"); _ = install(bank)
    >>> call = {"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"}
    >>> [once(bank, call, lambda connection: "done") for _ in range(2)]
    ['done', None]
    """
    require_blocking(function, "aonce")
    require_no_event_loop()
    call = read_call(request)
    try:
        return _take_effect(engine, call, function, table)
    except RowTaken:
        _confirm(engine, call, table)
        return None


def _take_effect(engine: Any, call: BranchCall, function: Callable[[Any], R], table: str) -> R:
    token = secrets.token_hex(16)
    transaction = open_transaction(engine)
    try:
        perform(begin_branch(transaction.dialect, table, call, token), transaction)
        perform(look_once(ask_engine(engine), transaction.dialect, table), transaction)
        _reach("branch.before_effect")
        with Block(transaction.handle) if watched() else nullcontext():
            result = require_accepted(require_ended(function(transaction.handle), "use `aonce`"))
        transaction.commit(verify_branch(transaction.dialect, table, call, token))
        _reach("branch.after_effect")
    except BaseException:
        transaction.rollback()
        raise
    finally:
        transaction.close()
    return result


def _confirm(engine: Any, call: BranchCall, table: str) -> None:
    transaction = open_transaction(engine, lock_timeout_ms=LOCK_TIMEOUT_MS)
    try:
        perform(begin_bounded(transaction.dialect, LOCK_TIMEOUT_MS), transaction)
        transaction.commit(confirm_branch(transaction.dialect, table, call))
    except BaseException:
        transaction.rollback()
        raise
    finally:
        transaction.close()


@overload
async def aonce(
    engine: Asyncpg,
    request: Mapping[str, Any],
    function: Callable[[AsyncpgHandle], Awaitable[R]],
    *,
    table: str = DEFAULT_TABLE,
) -> R | None: ...
@overload
async def aonce(
    engine: Asynchronous[H],
    request: Mapping[str, Any],
    function: Callable[[H], Awaitable[R]],
    *,
    table: str = DEFAULT_TABLE,
) -> R | None: ...
async def aonce(
    engine: Any, request: Mapping[str, Any], function: Callable[[Any], Awaitable[R]], *, table: str = DEFAULT_TABLE
) -> R | None:
    """`once` for an async engine and an async effect."""
    call = read_call(request)
    try:
        return await _atake_effect(engine, call, function, table)
    except RowTaken:
        await _aconfirm(engine, call, table)
        return None


async def _atake_effect(engine: Any, call: BranchCall, function: Callable[[Any], Awaitable[R]], table: str) -> R:
    token = secrets.token_hex(16)
    transaction = await aopen_transaction(engine)
    try:
        await aperform(begin_branch(transaction.dialect, table, call, token), transaction)
        await aperform(look_once(ask_engine(engine), transaction.dialect, table), transaction)
        _reach("branch.before_effect")
        with Block(transaction.handle) if watched() else nullcontext():
            result = require_accepted(await await_end(function(transaction.handle), "once"))
        await transaction.commit(verify_branch(transaction.dialect, table, call, token))
        _reach("branch.after_effect")
    finally:
        await give_back(transaction)
    return result


async def _aconfirm(engine: Any, call: BranchCall, table: str) -> None:
    transaction = await aopen_transaction(engine, lock_timeout_ms=LOCK_TIMEOUT_MS)
    try:
        await aperform(begin_bounded(transaction.dialect, LOCK_TIMEOUT_MS), transaction)
        await transaction.commit(confirm_branch(transaction.dialect, table, call))
    finally:
        await give_back(transaction)
