"""The plan of an archive's run: the rows behind the lake's marks.

It goes up to the store's present, and is divided into rounds of tasks. History is followed by (node, seq), which are
written in commit order: all rows up to a node's last number can be read. So is the audit log, by seq. Attempts have no
such number (their ids may be given out in one order and committed in another, and SQLite may give one out again), so
they are followed by time (see `spans`), at a distance that gives each the time to arrive. Entries of queues are
followed so, too, because a lake has no mark of each queue.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from twophase.core.errors import ArchiveRefused
from twophase.core.hooks import Clock
from twophase_spark.lake.spans import Span, spans_between
from twophase_spark.lake.tables import Extent, File, Lake, Snapshot
from twophase_spark.lake.writing import statement
from twophase_spark.readers.database import Database
from twophase_spark.readers.probe import ENTRIES
from twophase_spark.source.options.looking import looked_into
from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.partitions.parts import Stretch
from twophase_spark.source.partitions.planning import lowest_seq, newest_seqs
from twophase_spark.source.schema.sql import select
from twophase_spark.source.schema.tables import Kind

ROWS_PER_TASK = 250_000
TASKS_PER_ROUND = 8
SETTLING_MS = 3_600_000
"""An hour: the time that a row may take from its own time to the store.

It is an attempt, or a message whose node's clock is slow.
"""


_SAME = {Kind.HISTORY: ("gid", "finished_ms"), Kind.AUDIT_LOG: ("hash",)}
"""Columns by which a row is known again."""


class Plan(msgspec.Struct, frozen=True):
    """The rounds of a run.

    `tops`: node to its newest number, also where no row of it is left; `rounds`: stretches of history; `until_ms`:
    attempts are copied, and all may be removed from the store, up to there; `first_time`: see `nothing_released`.
    """

    tops: dict[int, int]
    rounds: tuple[tuple[Stretch, ...], ...]
    attempts: tuple[Span, ...]
    entries: tuple[Span, ...]
    audit_log: tuple[Stretch, ...]
    until_ms: int
    first_time: bool

    @property
    def rows(self) -> int:
        """The number of history rows, in all rounds."""
        return sum(one.rows for round_ in self.rounds for one in round_)

    @property
    def attempt_rows(self) -> int:
        """The number of attempts, in all spans."""
        return sum(span.rows for span in self.attempts)

    @property
    def entry_rows(self) -> int:
        """The number of entries of queues, in all spans."""
        return sum(span.rows for span in self.entries)

    @property
    def audit_rows(self) -> int:
        """The number of rows of the audit log."""
        return sum(one.rows for one in self.audit_log)


def plan(requested: ReadOptions, snapshot: Snapshot, clock: Clock, rows_per_task: int = ROWS_PER_TASK) -> Plan:
    """Plan what is in the store and not in the lake.

    Raises:
        ArchiveRefused: the store's numbers are behind the lake's, or it has another row under the lake's last one.
        CannotRead: no such store.
    """
    extent = snapshot.extent()
    with looked_into(requested) as (database, engine):
        now_ms = store_now_ms(database, engine, clock)
        tops = newest_seqs(database)
        behind = {node: seq for node, seq in extent.through.items() if seq > tops.get(node, 0)}
        if behind:
            raise _restored(f"The lake has nodes up to {behind}, and the store only {tops}.")
        spans = behind_the_lake(database, tops, extent, rows_per_task)
        until_ms = max(now_ms - SETTLING_MS, extent.until_ms)
        attempts = spans_between(database, "attempts", extent.until_ms, until_ms, rows_per_task)
        since_ms = extent.entries_until_ms
        has_queues = bool(database.columns(ENTRIES))  # the store of an older coordinator has none
        entries = spans_between(database, "entries", since_ms, until_ms, rows_per_task) if has_queues else ()
        audit_log = _audit_log_behind(database, extent.audit_through, rows_per_task)
        _require_same_rows(database, snapshot, extent)
    rounds = tuple(tuple(spans[at : at + TASKS_PER_ROUND]) for at in range(0, len(spans), TASKS_PER_ROUND))
    return Plan(tops, rounds, attempts, entries, tuple(audit_log), until_ms, nothing_released(extent))


def _audit_log_behind(database: Database, through: int, rows_per_task: int) -> list[Stretch]:
    """Return what the audit log has and the lake has not, cut into tasks.

    Its rows are numbered in the order of their commits. A store of an earlier version has no audit log.
    """
    if not database.columns("audit_log"):
        return []
    [(anchor, top)] = database.rows(statement("audit_ends"))
    if top < through:
        raise _restored(f"The lake has the audit log up to row {through}, and the store only to {top}.")
    return cut(0, (through or int(anchor)) + 1, int(top), rows_per_task)


def _require_same_rows(database: Database, snapshot: Snapshot, extent: Extent) -> None:
    """Refuse a store that has other rows under the last numbers of the lake.

    A store from a backup ends before them only until it has grown beyond. Its new rows up to there are not in the lake,
    and would be removed as if they were. A row that is gone proves nothing, because rows are cleaned.
    """
    ends = [(Kind.HISTORY, node, last) for node, last in extent.through.items()]
    if database.columns("audit_log"):
        ends.append((Kind.AUDIT_LOG, 0, extent.audit_through))
    files = {kind: snapshot.files(kind) for kind in _SAME}
    for kind, node, last in ends:
        of_node = [f"node = {node}"] if kind is Kind.HISTORY else []
        found = database.rows(select(_SAME[kind], kind.value, [*of_node, f"seq = {last}"]))
        holding = [file for file in files[kind] if file.node == node and file.last == last] if found else []
        known = [row for file in holding if (row := _row_at(snapshot.lake, file, last))]
        if known and tuple(found[0]) != known[0]:
            where = f"node {node}, seq {last}" if kind is Kind.HISTORY else f"row {last} of the audit log"
            raise _restored(f"The store has another message or act than the lake under {where}.")


def _row_at(lake: Lake, file: File, seq: int) -> tuple[object, ...]:
    """Return what tells the row at a number from others.

    It is empty if it cannot be read, which a verification names.
    """
    names = _SAME[file.kind]
    try:
        with lake.files_of(file.kind).open_input_file(file.path) as source:
            table = pq.ParquetFile(source, page_checksum_verification=True).read(columns=["seq", *names])
    except (OSError, pa.ArrowInvalid):
        return ()
    rows = table.filter(pc.field("seq") == seq).to_pylist()
    return tuple(rows[0][name] for name in names) if rows else ()


def _restored(what: str) -> ArchiveRefused:
    return ArchiveRefused(
        f"{what} It was restored from a backup, or is another store.",
        remedy="What the store has written since cannot be told from what the lake has; archive it into a new "
        "lake: first --detach, then another --lake.",
    )


def store_now_ms(database: Database, engine: str, clock: Clock) -> int:
    """Return the store's time: by PostgreSQL's own clock; SQLite has none."""
    return int(database.rows(statement("now"))[0][0]) if engine == "postgresql" else clock.now_ms()


def nothing_released(extent: Extent) -> bool:
    """Return True when the lake's first run has not finished.

    Rows missing then were removed before there was an archive.
    """
    return extent.until_ms == 0


def behind_the_lake(database: Database, tops: Mapping[int, int], extent: Extent, rows_per_task: int) -> list[Stretch]:
    """Return what nodes have up to `tops` and the lake has not, cut into tasks."""
    spans: list[Stretch] = []
    for node, top in sorted(tops.items()):
        first = extent.through.get(node, 0) + 1
        if nothing_released(extent) and node not in extent.through:
            first = lowest_seq(database, node) or top + 1
        spans += cut(node, first, top, rows_per_task)
    return spans


def cut(node: int, first: int, last: int, width: int) -> list[Stretch]:
    """Return the numbers from `first` to `last` in stretches of `width`.

    >>> cut(1, 1, 5, 3), cut(1, 6, 5, 3)
    ([Stretch(node=1, first=1, last=3, topic=''), Stretch(node=1, first=4, last=5, topic='')], [])
    """
    bounds = [*range(first, last + 1, width), last + 1]
    return [Stretch(node, begin, end - 1) for begin, end in itertools.pairwise(bounds)]
