"""Remove barrier rows that no verdict and no call can need any more.

This keeps I10 by correctness rules 12 to 17. Age alone never removes a row. A producer's row, and a check-back's, is
removed when three clocks agree. Every coordinator has decided everything that old, so no coordinator asks. The begin
deadline has passed by far, so no transaction begins. And the horizon row, raised in the transaction of the deletes,
shows a check-back that still arrives (delayed in the network for weeks) that an absent row proves nothing. A consumer's
row is removed when every coordinator that may call has finished all it had decided by then, and the retention after
that has passed: no call for it is on its way.

Several cleaners may overlap: a DELETE names each row by id and gid, and repeats why it may go, because between reading
and deleting another cleaner may have removed the row, and a database may have given its id to a new one.

Only rows are removed that this library wrote with a known time. For others' rows (dtm's own, those of a prepare
without a time) it is unknown what may still arrive.
"""

from __future__ import annotations

import enum
import itertools
import logging
import string
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from twophase.barrier.asking import CLOCK_SKEW_MS, LOCK_TIMEOUT_MS, begin_bounded
from twophase.barrier.dialect import BRANCH_HORIZON, DEFAULT_TABLE, HORIZON, Dialect, meta_row, validate_table
from twophase.barrier.fault import Fault, fault_of
from twophase.barrier.first_look import table_missing
from twophase.barrier.open import open_transaction
from twophase.barrier.transaction import Row, Statement, Steps, perform, say, text_of
from twophase.core.errors import ConfigurationError
from twophase.core.limits import BEGIN_DEADLINE_MS

DAY_MS: Final = 24 * 3600 * 1000
KEEP_MS: Final = 35 * DAY_MS
KEEP_LEAST_MS: Final = DAY_MS
"""The least time that rows are kept.

It is far above the begin deadline (an hour) and the allowed difference of clocks (five minutes).
"""

LOCAL_TIME_MS: Final = 14 * 3600 * 1000
"""The largest difference of a local time from UTC.

MySQL, and a table that dtm made on PostgreSQL, store the time of a row in the writer's local time.
"""

T = TypeVar("T")

PAGE_ROWS: Final = 1_000
DELETED_AT_ONCE: Final = 200
_READ_TRIES: Final = 5
_PAUSE: Final = 4
"""Times the length of a batch, before the next."""

_SLOTS: Final = tuple(
    f"{a}{b}" for a, b in itertools.product(string.ascii_lowercase, repeat=2)
)[:DELETED_AT_ONCE]  # fmt: skip

_log = logging.getLogger("twophase.barrier")


class Kind(enum.StrEnum):
    """Whose rows go; the value names the statement that removes them."""

    PRODUCERS = "clean_producers"
    BRANCHES = "clean_branches"


class Found(NamedTuple):
    """A row as it was read."""

    id: int
    gid: str


class Horizons(msgspec.Struct, frozen=True):
    """The times below which rows may be removed, in ms since 1970; None: no row.

    `producer_ms` is compared with when a message was prepared, `branch_ms` with when a branch took effect.
    """

    producer_ms: int | None
    branch_ms: int | None


class Cleaned(msgspec.Struct, frozen=True):
    """The rows that were removed, or would be.

    `held`: rows that another transaction held, left for the next time.
    """

    producer_rows: int
    branch_rows: int
    held: int
    horizons: Horizons


def clean(
    engine: Any,
    *,
    undecided_ms: int | None,
    unfinished_ms: int | None,
    keep_ms: int = KEEP_MS,
    table: str = DEFAULT_TABLE,
    dry_run: bool = False,
) -> Cleaned:
    """Remove what is old, in small transactions with pauses between them.

    Arguments:
        engine: whatever `open_transaction` takes.
        undecided_ms: the least `oldest_undecided_ms` of all coordinators whose producers use this table; None when one
            of them does not answer, and producers' rows stay.
        unfinished_ms: the least `oldest_unfinished_ms` of all coordinators that may call branches here, such as a
            branch call's header `x-twophase-oldest` says; None as above, and branches' rows stay.
        keep_ms: rows younger than this by the database's clock stay in any case; at least a day.
        dry_run: change nothing, only count.

    Raises:
        ConfigurationError: `keep_ms` is too short, or the table's name cannot be one.
        BarrierTableMissing: `install` has not been run here.
        Whatever the database raises: what was removed before stays removed, and the horizon with it.

    >>> import sqlite3; from twophase.barrier import install
    >>> bank = sqlite3.connect(":memory:"); _ = install(bank)
    >>> clean(bank, undecided_ms=None, unfinished_ms=None).producer_rows
    0
    """
    validate_table(table)
    if keep_ms < KEEP_LEAST_MS:
        raise ConfigurationError(f"keep: {keep_ms} ms are too short; at least {KEEP_LEAST_MS} (a day) must be kept.")
    now_ms = database_now_ms(engine, table)
    horizons = horizons_below(now_ms - keep_ms, undecided_ms, unfinished_ms)
    producers = branches = held = 0
    for page in _pages(engine, table, horizons):
        of_producers, of_branches = old_rows(page, horizons)
        if not dry_run:
            removed, left = _remove(engine, table, horizons, Kind.PRODUCERS, of_producers)
            producers, held = producers + removed, held + left
            removed, left = _remove(engine, table, horizons, Kind.BRANCHES, of_branches)
            branches, held = branches + removed, held + left
        else:
            producers, branches = producers + len(of_producers), branches + len(of_branches)
    return Cleaned(producers, branches, held, horizons)


def database_now_ms(engine: Any, table: str = DEFAULT_TABLE) -> int:
    """Read the database's clock for comparison; raise BarrierTableMissing."""

    def rule(dialect: Dialect) -> Steps[int]:
        rows = yield say(dialect, "now")
        return int(rows[0][0])

    return _alone(engine, validate_table(table), rule)


def identity_of(engine: Any, table: str = DEFAULT_TABLE) -> str:
    """Return the name that `install` gave this barrier table.

    Coordinators know by it who asks them.

    Raises:
        BarrierTableMissing: `install` has not been run here.
    """

    def rule(dialect: Dialect) -> Steps[str]:
        meta = yield say(dialect, "read_meta", table)
        found = {str(name): str(value) for name, value in meta}
        if "identity" not in found:
            raise table_missing(table)
        return found["identity"]

    return _alone(engine, table, rule)


def horizons_below(kept_ms: int, undecided_ms: int | None, unfinished_ms: int | None) -> Horizons:
    """Return the times below which rows may be removed.

    Prepared-at times are the coordinator's own; times of branches are this database's, so clocks may differ.
    """
    branch_ms = None
    if unfinished_ms is not None:
        branch_ms = min(unfinished_ms, kept_ms) - CLOCK_SKEW_MS - LOCAL_TIME_MS
    return Horizons(None if undecided_ms is None else min(undecided_ms, kept_ms), branch_ms)


def _pages(engine: Any, table: str, horizons: Horizons) -> Iterator[Sequence[Row]]:
    """Yield pages of rows from the old end.

    The last one is the first page in which everything was written after the horizons. Written, not prepared: the next
    cleaning meets a row that was written late for a message prepared long ago (a check-back's). So young rows are not
    read, however many there are.
    """
    newest = max((one for one in (horizons.producer_ms, horizons.branch_ms) if one is not None), default=None)
    after = -1
    while newest is not None:
        page = _read_page(engine, table, after)
        if not page:
            return
        yield page
        if is_young(page, newest):
            return
        after = int(page[-1][0])


def is_young(page: Sequence[Row], newest_ms: int) -> bool:
    """Return True when this page and all later ones are after the newest horizon."""
    written = [int(row[3]) for row in page if row[3] is not None]
    return bool(written) and min(written) > newest_ms + BEGIN_DEADLINE_MS.value + CLOCK_SKEW_MS + LOCAL_TIME_MS


def _read_page(engine: Any, table: str, after: int) -> Sequence[Row]:
    """Return the next rows, on SQLite perhaps only at the second or third try.

    There, reading takes its turn among writers.
    """

    def rule(dialect: Dialect) -> Steps[Sequence[Row]]:
        return (yield say(dialect, "clean_page", table, after=after, page_rows=PAGE_ROWS))

    for _ in range(_READ_TRIES - 1):
        try:
            return _alone(engine, table, rule)
        except Exception as error:
            if fault_of(error) is not Fault.BUSY:
                raise
    return _alone(engine, table, rule)


def old_rows(page: Sequence[Row], horizons: Horizons) -> tuple[list[Found], list[Found]]:
    """Return the producers' rows and the branches' rows of a page that may be deleted."""
    producers: list[Found] = []
    branches: list[Found] = []
    for id_, kind, prepared_ms, written_ms, gid in page:
        owner = text_of(kind)
        if owner == "producer" and _below(prepared_ms, horizons.producer_ms):
            producers.append(Found(int(id_), str(text_of(gid))))
        elif owner == "branch" and _below(written_ms, horizons.branch_ms):
            branches.append(Found(int(id_), str(text_of(gid))))
    return producers, branches


def _below(time_ms: int | None, horizon_ms: int | None) -> bool:
    return time_ms is not None and horizon_ms is not None and time_ms < horizon_ms


def _remove(engine: Any, table: str, horizons: Horizons, kind: Kind, rows: list[Found]) -> tuple[int, int]:
    """Remove these rows; how many were removed here, and how many stay.

    A batch with a row that a transaction holds stays.
    """
    removed = held = 0
    for start in range(0, len(rows), DELETED_AT_ONCE):
        part = rows[start : start + DELETED_AT_ONCE]
        began_s = time.monotonic()
        try:
            removed += _alone(engine, table, partial(remove_rule, table, horizons, kind, part), commit=True)
        except Exception as error:
            if fault_of(error) is not Fault.BUSY:
                raise
            _log.info("barrier cleaning leaves %d rows that are in use", len(part))
            held += len(part)
        time.sleep((time.monotonic() - began_s) * _PAUSE)
    return removed, held


def remove_rule(table: str, horizons: Horizons, kind: Kind, rows: list[Found], dialect: Dialect) -> Steps[int]:
    """Remove one batch, the horizons first; the number of rows that were still there.

    Who misses a row of it sees the horizons. Another cleaner may have removed a row since it was read.
    """
    below_ms = horizons.producer_ms if kind is Kind.PRODUCERS else horizons.branch_ms
    assert below_ms is not None, "only rows below a horizon go"
    yield from begin_bounded(dialect, LOCK_TIMEOUT_MS)
    for name, horizon_ms in ((HORIZON, horizons.producer_ms), (BRANCH_HORIZON, horizons.branch_ms)):
        if horizon_ms is not None:
            own = meta_row(name, table, dialect.name)
            yield say(dialect, "clean_horizon", table, name=own, horizon=horizon_ms)
    sql = dialect.sql(kind.value, table)
    if ":ids" not in sql:
        removed = 0
        for row in rows:
            yield Statement(sql, {"id": row.id, "gid": row.gid, "horizon": below_ms})
            removed += int((yield say(dialect, "clean_count"))[0][0])
        return removed
    # The number is constant, so that a database prepares one statement: the last row fills the remaining parameters.
    filled = rows + rows[-1:] * (len(_SLOTS) - len(rows))
    ids = {f"id_{slot}": row.id for slot, row in zip(_SLOTS, filled, strict=True)}
    gids = {f"gid_{slot}": row.gid for slot, row in zip(_SLOTS, filled, strict=True)}
    sql = sql.replace(":ids", _placeholders(ids)).replace(":gids", _placeholders(gids))
    return len((yield Statement(sql, {**ids, **gids, "horizon": below_ms})))


def _placeholders(names: Iterable[str]) -> str:
    return ", ".join(f":{name}" for name in names)


def _alone(engine: Any, table: str, rule: Callable[[Dialect], Steps[T]], *, commit: bool = False) -> T:
    """Perform a rule in a transaction of its own."""
    transaction = open_transaction(engine, lock_timeout_ms=LOCK_TIMEOUT_MS)
    try:
        result = perform(rule(transaction.dialect), transaction)
        if commit:
            transaction.commit()
    except Exception as error:
        if transaction.dialect.is_missing_table(error):
            raise table_missing(table) from error
        raise
    finally:
        transaction.rollback()
        transaction.close()
    return result
