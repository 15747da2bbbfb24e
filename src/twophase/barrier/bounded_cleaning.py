"""One small cleaning, for a service that cleans beside its work; sans-IO.

It takes few rows by key and few pages, with pauses. It removes what `cleaning` would, by the same rules and statements
(I10), and stops early. It yields commands; a driver performs them with blocking calls in a thread, or on asyncio.
Nothing here is part of a business transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from twophase.barrier.cleaning import (
    DELETED_AT_ONCE,
    PAGE_ROWS,
    Found,
    Horizons,
    Kind,
    horizons_below,
    is_young,
    old_rows,
    remove_rule,
)
from twophase.barrier.dialect import Dialect
from twophase.barrier.fault import Fault, fault_of
from twophase.barrier.first_look import table_missing
from twophase.barrier.transaction import Row, Steps, say, text_of

ROWS_MAX: Final = 500
_PAGES_MAX: Final = 5
"""Rows that must stay, between the oldest row and the first that may go."""


class Alone(msgspec.Struct, frozen=True):
    """Perform a rule in a separate transaction; the result is the rule's."""

    rule: Callable[[Dialect], Steps[Any]]
    commit: bool = False


class Agree(msgspec.Struct, frozen=True):
    """Ask every coordinator for two times, in milliseconds.

    Everything before the first is decided; everything before the second is finished.
    """

    identity: str
    now_ms: int


class Rest(msgspec.Struct, frozen=True):
    """Leave the database to others for a while.

    The pause is in proportion to the time that the last transaction took.
    """


class CleanedSome(msgspec.Struct, frozen=True):
    """The rows that one run removed.

    `after`: the id from which the next run reads on, -1 for the oldest.
    """

    rows: int
    after: int


Run = Generator[Alone | Agree | Rest, Any, CleanedSome]


def clean_some(table: str, keep_ms: int, after: int) -> Run:
    """Remove at most `ROWS_MAX` rows.

    Arguments:
        table: validated.
        keep_ms: rows younger than this by the database's clock stay in any case.
        after: where the run before stopped.

    Raises:
        BarrierTableMissing: `install` has not been run here. What the driver raises, when a coordinator does not agree.
    """
    identity, now_ms = yield Alone(partial(_facts, table))
    undecided_ms, unfinished_ms = yield Agree(identity, now_ms)
    horizons = horizons_below(now_ms - keep_ms, undecided_ms, unfinished_ms)
    newest_ms = max(one for one in (horizons.producer_ms, horizons.branch_ms) if one is not None)
    removed = taken = 0
    for _ in range(_PAGES_MAX):
        page: Sequence[Row] = yield Alone(partial(_page, table, after))
        if not page:
            return CleanedSome(removed, -1)
        found = old_rows(page, horizons)
        for kind, rows in zip((Kind.PRODUCERS, Kind.BRANCHES), found, strict=True):
            counts = yield from _remove(table, horizons, kind, rows[: ROWS_MAX - taken])
            removed, taken = removed + counts[0], taken + counts[1]
        if taken >= ROWS_MAX:
            return CleanedSome(removed, after)
        if is_young(page, newest_ms):
            return CleanedSome(removed, -1)
        after = int(page[-1][0])
    return CleanedSome(removed, after)


def _facts(table: str, dialect: Dialect) -> Steps[tuple[str, int]]:
    """Read the database's name and its clock."""
    try:
        meta = yield say(dialect, "read_meta", table)
    except Exception as error:
        if dialect.is_missing_table(error):
            raise table_missing(table) from error
        raise
    found = {str(text_of(name)): str(text_of(value)) for name, value in meta}
    if "identity" not in found:
        raise table_missing(table)
    rows = yield say(dialect, "now")
    return found["identity"], int(rows[0][0])


def _page(table: str, after: int, dialect: Dialect) -> Steps[Sequence[Row]]:
    return (yield say(dialect, "clean_page", table, after=after, page_rows=PAGE_ROWS))


def _remove(
    table: str, horizons: Horizons, kind: Kind, rows: list[Found]
) -> Generator[Alone | Agree | Rest, Any, tuple[int, int]]:
    """Remove these rows; how many were removed here, and how many are gone.

    Another cleaner may have removed some since they were read.
    """
    removed = gone = 0
    for start in range(0, len(rows), DELETED_AT_ONCE):
        part = rows[start : start + DELETED_AT_ONCE]
        try:
            removed += yield Alone(partial(remove_rule, table, horizons, kind, part), commit=True)
        except Exception as error:
            if fault_of(error) is not Fault.BUSY:
                raise
        else:
            gone += len(part)
        yield Rest()
    return removed, gone
