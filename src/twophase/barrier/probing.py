"""The answer of a check-back route to a coordinator's probe.

It reports if the route could answer a check-back now, and leaves nothing written. The database is examined as a
check-back would find it: the same bounds on waiting, the same table, the same check that the producer wrote to it, and
the same write, for a gid that no message has, which is rolled back.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from twophase.barrier.asking import begin_bounded, write_row
from twophase.barrier.dialect import Dialect
from twophase.barrier.durability import require_durability
from twophase.barrier.fault import Fault, code_of, fault_of
from twophase.barrier.open import aopen_transaction, open_transaction
from twophase.barrier.producer import read_identity
from twophase.barrier.shelter import give_back
from twophase.barrier.transaction import Steps, aperform, perform, say
from twophase.core.errors import (
    BarrierRowRefused,
    BarrierTableMissing,
    BarrierTableUnusable,
    DatabaseIsReplica,
    TwophaseError,
    UnsafeDatabase,
    WrongDatabase,
)
from twophase.core.gid import PROBE_GID
from twophase.core.probe import ProbeReport, ProbeState

_UNNAMED: Final = "the address names no database (`barrier=`), so none was compared"
_OTHER: Final = "the route's database is not the one that the address names"
_LOOK: Final = "Look at the service's database and its log."
_GRANT: Final = (
    "Grant select, insert and update on the barrier table, and select on twophase_meta, to the user of the check-back "
    "route."
)


def probe_rule(dialect: Dialect, table: str, identity: str | None, lock_timeout_ms: int) -> Steps[ProbeReport]:
    """Read the clock, the database's name and what its commits are worth, and write.

    The caller rolls back.

    Arguments:
        identity: the database that the check address names; None leaves it uncompared.
        lock_timeout_ms: the longest wait for a lock.
    """
    bounds = yield from begin_bounded(dialect, lock_timeout_ms)
    rows = yield say(dialect, "now", table)
    now_ms = int(rows[0][0])
    try:
        found = yield from read_identity(dialect, table, allow_unsafe=True)
        if identity is not None and found != identity:
            return ProbeReport(ProbeState.WRONG_DATABASE, f"{WrongDatabase.code}: {_OTHER}", WrongDatabase.remedy)
        yield from require_durability(dialect, table)
        if not (yield from write_row(dialect, table, PROBE_GID, PROBE_GID, None, bounds)):
            return _report(ProbeState.NO_BARRIER, BarrierRowRefused())
    except (BarrierTableMissing, BarrierTableUnusable) as error:
        return _report(ProbeState.NO_BARRIER, error)
    except DatabaseIsReplica as error:
        return _report(ProbeState.WRONG_DATABASE, error)
    except UnsafeDatabase as error:
        return _report(ProbeState.UNSAFE_DATABASE, error)
    return ProbeReport(ProbeState.READY, _UNNAMED if identity is None else "", now_ms=now_ms)


def probe(engine: Any, identity: str | None, table: str, lock_timeout_ms: int) -> ProbeReport:
    """Look at the database of a check-back route.

    The transaction is rolled back.
    """
    try:
        transaction = open_transaction(engine, lock_timeout_ms=lock_timeout_ms)
        try:
            report = perform(probe_rule(transaction.dialect, table, identity, lock_timeout_ms), transaction)
        finally:
            transaction.rollback()
            transaction.close()
    except Exception as error:  # noqa: BLE001 -- whatever failed, its code is the answer
        report = _failed(error)
    return msgspec.structs.replace(report, lock_timeout_ms=lock_timeout_ms)


async def aprobe(engine: Any, identity: str | None, table: str, lock_timeout_ms: int) -> ProbeReport:
    """`probe` for an async engine."""
    try:
        transaction = await aopen_transaction(engine, lock_timeout_ms=lock_timeout_ms, pool_timeout_ms=lock_timeout_ms)
        try:
            report = await aperform(probe_rule(transaction.dialect, table, identity, lock_timeout_ms), transaction)
        finally:
            await give_back(transaction)
    except Exception as error:  # noqa: BLE001 -- whatever failed, its code is the answer
        report = _failed(error)
    return msgspec.structs.replace(report, lock_timeout_ms=lock_timeout_ms)


def _report(state: ProbeState, error: TwophaseError) -> ProbeReport:
    return ProbeReport(state, f"{error.code}: {error.message}", error.remedy)


def _failed(error: Exception) -> ProbeReport:
    """Return the report of a failure, by its code only.

    Texts of databases repeat addresses and values.
    """
    if isinstance(error, TwophaseError):
        return _report(ProbeState.DATABASE_FAILED, error)
    if fault_of(error) is Fault.BUSY:
        return ProbeReport(ProbeState.BUSY, f"the database is busy ({code_of(error)})")
    remedy = _GRANT if fault_of(error) is Fault.DENIED else _LOOK
    return ProbeReport(ProbeState.DATABASE_FAILED, f"the database failed ({code_of(error)})", remedy)
