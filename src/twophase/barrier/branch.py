"""The receiving side of the barrier: a branch takes effect at most once, however often it is called (I6).

`once` owns the transaction: row and effect commit together, and the reply that ends the coordinator's calls comes
after that commit, never before (decision 6).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE, Dialect
from twophase.barrier.durability import warn_once
from twophase.barrier.effect import require_awaitable, require_blocking, require_ended
from twophase.barrier.open import aopen_transaction, ask_engine, open_transaction
from twophase.barrier.parameters import one_value
from twophase.barrier.producer import IDLE_IN_TRANSACTION, begin_settings, mark, table_missing, verify_row
from twophase.barrier.transaction import Steps, aperform, perform, say
from twophase.core import failpoint
from twophase.core.errors import InvalidRequest, UnsupportedType
from twophase.core.gid import validate_gid

R = TypeVar("R")


class BranchRefused(Exception):
    """Raise it inside a branch to answer 409: not possible now; rolled back, and called again later."""


class BranchOngoing(Exception):
    """Raise it inside a branch to answer 425: not done yet; rolled back, and called again soon."""


class AlreadyDone(Exception):  # an internal signal of the rules
    """This branch has taken effect before."""


class BranchCall(msgspec.Struct, frozen=True):
    """Which branch of which message is called."""

    gid: str
    branch_id: str
    op: str = "action"


def read_gid(parameters: Mapping[str, Any]) -> str:
    """The message that a coordinator's request names.

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
    """The branch that a request's query parameters name (dtm-wire §3.1).

    Raises:
        UnsupportedType: `trans_type` is not `msg`.
        InvalidRequest: `gid`, `branch_id` or `op` is missing or impossible, or one stands there twice.

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
    """First statements of a branch's transaction; raises AlreadyDone, BarrierTableMissing."""
    yield from begin_settings(dialect)
    try:
        yield say(
            dialect,
            "insert_branch",
            table,
            gid=call.gid,
            branch_id=call.branch_id,
            op=call.op,
            token=token,
            idle_timeout=IDLE_IN_TRANSACTION,
        )
    except Exception as error:
        if dialect.is_duplicate(error):
            raise AlreadyDone from error
        if dialect.is_missing_table(error):
            raise table_missing(table, gid=call.gid) from error
        raise
    yield from mark(dialect)


def verify_branch(dialect: Dialect, table: str, call: BranchCall, token: str) -> Steps[None]:
    """Last statement before COMMIT; raises TransactionLost."""
    yield from verify_row(dialect, table, call.gid, call.branch_id, call.op, token)


def _reach(name: str) -> None:
    if failpoint.ARMED:
        failpoint.reach(name)


def once(
    engine: Any, request: Mapping[str, Any], function: Callable[[Any], R], *, table: str = DEFAULT_TABLE
) -> R | None:
    """Run `function` in a transaction, if this branch has not taken effect yet.

    Arguments:
        engine: whatever `open_transaction` takes.
        request: the query parameters of the coordinator's call: gid, branch_id, op, trans_type.
        function: the effect; it is given what it executes its statements on, and must not end the transaction.

    Returns:
        What `function` returned, committed; None when the branch had taken effect before.

    Raises:
        InvalidRequest: the parameters name no branch.
        FunctionRefused: `function` is async, or returned what waits to be awaited; nothing stays.
        TransactionLost: the block ended the transaction itself; nothing may be confirmed.
        Whatever `function` raised, after the rollback.

    >>> import sqlite3; from twophase.barrier import install
    >>> bank = sqlite3.connect(":memory:"); _ = install(bank)
    >>> call = {"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"}
    >>> [once(bank, call, lambda connection: "done") for _ in range(2)]
    ['done', None]
    """
    require_blocking(function, "aonce")
    call, token = read_call(request), secrets.token_hex(16)
    transaction = open_transaction(engine)
    try:
        perform(begin_branch(transaction.dialect, table, call, token), transaction)
        perform(warn_once(ask_engine(engine), transaction.dialect, table), transaction)
        _reach("branch.before_effect")
        result = require_ended(function(transaction.handle), "aonce")
        perform(verify_branch(transaction.dialect, table, call, token), transaction)
        transaction.commit()
        _reach("branch.after_effect")
    except AlreadyDone:
        transaction.rollback()
        return None
    except BaseException:
        transaction.rollback()
        raise
    finally:
        transaction.close()
    return result


async def aonce(
    engine: Any, request: Mapping[str, Any], function: Callable[[Any], Awaitable[R]], *, table: str = DEFAULT_TABLE
) -> R | None:
    """`once` for an async engine and an async effect."""
    call, token = read_call(request), secrets.token_hex(16)
    transaction = await aopen_transaction(engine)
    try:
        await aperform(begin_branch(transaction.dialect, table, call, token), transaction)
        await aperform(warn_once(ask_engine(engine), transaction.dialect, table), transaction)
        _reach("branch.before_effect")
        result = await require_awaitable(function(transaction.handle), "once")
        await aperform(verify_branch(transaction.dialect, table, call, token), transaction)
        await transaction.commit()
        _reach("branch.after_effect")
    except AlreadyDone:
        await transaction.rollback()
        return None
    except BaseException:
        await transaction.rollback()
        raise
    finally:
        await transaction.close()
    return result
