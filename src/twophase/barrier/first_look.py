"""The first look at an engine's barrier table.

It proves that the table can keep the promises (I2, I4, I6). Without its unique key two transactions write the same row,
and each believes that it was first. The error stays unnoticed until a branch takes effect twice, so producer,
check-back and branch prove the table before they rely on it.
"""

from __future__ import annotations

from typing import Any, Final

from twophase.barrier.by_engine import ByEngine, chooses_at_checkout
from twophase.barrier.dialect import MYSQL, Dialect, split_table
from twophase.barrier.durability import warn_once
from twophase.barrier.fault import code_of
from twophase.barrier.transaction import Row, Steps, say, text_of
from twophase.core.errors import BarrierError, BarrierRowRefused, BarrierTableMissing, BarrierTableUnusable

_PROVEN: Final = ByEngine[bool]()


def look_once(engine: Any, dialect: Dialect, table: str) -> Steps[None]:
    """Prove the table, and log a database that may forget.

    It does so once in some minutes for each engine. It runs inside the open transaction, behind its first statements. A
    table that was not proven is looked at again.

    Arguments:
        engine: what lasts (`ask_engine`): an engine, a pool or an alias of Django's. A connection that is handed over
            is looked at by itself.

    Raises:
        BarrierTableUnusable: the transaction must not continue.
    """
    if not _PROVEN.get(engine, table):
        yield from require_table(dialect, table)
        # MySQL's insert does not name the key, so it does not prove the table of another tenant.
        if dialect is not MYSQL or isinstance(engine, str) or not chooses_at_checkout(engine):
            _PROVEN.remember(engine, table, True)
    yield from warn_once(engine, dialect, table)


def require_table(dialect: Dialect, table: str) -> Steps[None]:
    """Prove that the table has the barrier's unique key, and outlives a crash.

    The key must be without nulls.

    Raises:
        BarrierTableUnusable: naming what is wrong.
    """
    if "read_creation" in dialect.statements:
        creation = yield say(dialect, "read_creation", table)
        if str(text_of(creation[0][1])).upper().startswith("CREATE TEMPORARY"):
            raise BarrierTableUnusable(f"The barrier table {table!r}: a temporary table hides it from this connection.")
    rows = yield from flaws_of(dialect, table)
    if rows:
        raise BarrierTableUnusable(f"The barrier table {table!r}: {'; '.join(str(text_of(row[1])) for row in rows)}.")


def flaws_of(dialect: Dialect, table: str) -> Steps[list[Row]]:
    """Read the flaws that make the table useless.

    A row has a word for the flaw (key, null, lasting, trigger), and its description.
    """
    schema, name = split_table(table)
    return list((yield say(dialect, "read_flaws", table, schema=schema, name=name)))


def refusal_of(dialect: Dialect, error: Exception, table: str, gid: str) -> BarrierError | None:
    """Return the typed error for a database's refusal of an insert.

    None when the refusal has another reason.
    """
    if dialect.is_missing_table(error):
        return table_missing(table, gid=gid)
    if dialect.is_unusable_table(error):
        return BarrierTableUnusable(
            f"The barrier table {table!r} has no immediate unique key over exactly gid, branch_id, op and barrier_id, "
            f"or no transactions ({code_of(error)}).",
            gid=gid,
        )
    if dialect.is_duplicate(error):
        return BarrierRowRefused(
            f"The barrier table refuses a row as a duplicate ({code_of(error)}), although no row of the same key "
            "stands.",
            gid=gid,
        )
    return None


def table_missing(table: str, gid: str | None = None) -> BarrierTableMissing:
    """Make the error for a database without a complete barrier table."""
    return BarrierTableMissing(f"There is no complete barrier table {table!r} in this database.", gid=gid)


def forgetful_table(table: str) -> BarrierTableUnusable:
    """Make the error for a written row that does not last."""
    return BarrierTableUnusable(
        f"The barrier table {table!r} that this connection finds is unlogged or temporary, so a crash empties it."
    )
