"""The plan of a batch read: its cut, and its tasks.

The rows of the cut are decided here, once, on the driver. History never changes and is numbered by (node, seq) in
commit order, so "every row up to these numbers" is the same set of rows whenever a task reads it. Live rows do change.
A journal (live and final together) is therefore cut so that no message can slip between the tables: history up to the
frozen numbers is read by some tasks; each other task reads, in one snapshot of its own, a range of gids of the live
rows *and* the rows that history has gained since the numbers were frozen. A message that was live then is in exactly
one of the two at that task's moment.
"""

from __future__ import annotations

import msgspec

from twophase.core.errors import ConfigurationError
from twophase_spark.readers.database import Database
from twophase_spark.source.options import filters
from twophase_spark.source.options.looking import looked_into
from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.partitions.parts import Follow, Part, Range
from twophase_spark.source.partitions.ranges import ROWS_PER_PART_MIN, number_ranges, text_ranges
from twophase_spark.source.schema.sql import column, literal, select
from twophase_spark.source.schema.tables import Kind

_MAY_LACK = {"id", "prepared_at", "create_time"}
"""Columns that a barrier table may lack.

It may if `twophase barrier install` did not make it.
"""


def plan(options: ReadOptions) -> list[Part]:
    """Return the tasks of a batch read; an empty list for nothing to read.

    Raises:
        CannotRead: no such database, table or column.
        ConfigurationError: asOf names what is not there yet.
    """
    if options.gids:
        options = msgspec.structs.replace(options, partitions=1)  # each task would look all of them up
    with looked_into(options) as (database, engine):
        if options.kind is Kind.HISTORY:
            return _history(options, database, engine, frozen_seqs(options, database))
        if options.kind is Kind.MESSAGE:
            pushed = filters.conditions(options, engine)
            ranges = text_ranges(database, engine, "message", "gid", options.partitions)
            return [Part((Range("message", (*one, *pushed)),)) for one in ranges]
        if options.kind is Kind.JOURNAL:
            return _journal(options, database, engine)
        if options.kind is Kind.ATTEMPT:
            return _attempts(options, database, engine)
        if options.kind is Kind.AUDIT_LOG:
            return _audit_log(options, database, engine)
        if options.kind is Kind.QUEUE_ENTRY:
            return _entries(options, database, engine)
        if options.kind is Kind.QUEUE_PROGRESS:
            return [Part((Range("queue_progress", filters.conditions(options, engine)),))]
        return _business(options, database, engine)


def newest_seqs(database: Database) -> dict[int, int]:
    """Return the last seq of every node, as one statement sees them.

    All rows up to there are committed and visible.
    """
    return {int(node): int(seq) for node, seq in database.rows(select(["id", "seq"], "node"))}


def frozen_seqs(options: ReadOptions, database: Database) -> dict[int, int]:
    """Return the last seq of each node's history that belongs to this read."""
    tops = newest_seqs(database)
    if options.as_of_seqs is None:
        return tops
    ahead = {node: seq for node, seq in options.as_of_seqs.items() if seq > tops.get(node, 0)}
    if ahead:
        raise ConfigurationError(f"Option asOf names seqs that do not exist yet: {ahead}; the store has {tops}.")
    return options.as_of_seqs


def lowest_seq(database: Database, node: int) -> int | None:
    """Return the first present row of a node; None when it has none."""
    [(lowest,)] = database.rows(select(["min(seq)"], "history", [f"node = {node}"]))
    return None if lowest is None else int(lowest)


def _history(options: ReadOptions, database: Database, engine: str, until: dict[int, int]) -> list[Part]:
    pushed = filters.conditions(options, engine)
    spans = {node: (lowest_seq(database, node), last) for node, last in sorted(until.items())}
    known = [(node, first, last) for node, (first, last) in spans.items() if first is not None and first <= last]
    rows = sum(last - first + 1 for _, first, last in known)
    width = max(ROWS_PER_PART_MIN, -(-rows // options.partitions))
    return [
        Part((Range("history", (f"node = {node}", *number_range, *pushed)),))
        for node, first, last in known
        for number_range in number_ranges("seq", first, last, -(-(last - first + 1) // width))
    ]


def _journal(options: ReadOptions, database: Database, engine: str) -> list[Part]:
    until = newest_seqs(database)
    pushed = filters.conditions(options, engine)
    live = [
        Part((Range("message", (*text_range, *pushed)),), Follow(until, (*text_range, *pushed)))
        for text_range in text_ranges(database, engine, "message", "gid", options.partitions)
    ]
    return live + _history(options, database, engine, until)


def _attempts(options: ReadOptions, database: Database, engine: str) -> list[Part]:
    pushed = filters.conditions(options, engine)
    if engine == "sqlite":  # its primary key is the id alone; PostgreSQL's begins with the gid
        ranges = _by_number(database, "attempt", "id", options.partitions)
    else:
        ranges = text_ranges(database, engine, "attempt", "gid", options.partitions)
    return [Part((Range("attempt", (*one, *pushed)),)) for one in ranges]


def _audit_log(options: ReadOptions, database: Database, engine: str) -> list[Part]:
    pushed = filters.conditions(options, engine)
    ranges = _by_number(database, "audit_log", "seq", options.partitions)
    return [Part((Range("audit_log", (*one, *pushed)),)) for one in ranges]


def _entries(options: ReadOptions, database: Database, engine: str) -> list[Part]:
    """Return the entries below the next number of each queue, each queue in its order.

    A task has many small queues, or a part of a large one.
    """
    pushed = filters.conditions(options, engine)
    spans: list[tuple[str, int, int, int]] = []
    for topic, queue, end in database.rows("select topic, queue, next_number from queue_counter order by topic, queue"):
        one = f"topic = {literal(engine, topic)} and queue = {int(queue)}"
        [(first,)] = database.rows(select(["min(number)"], "queue_entry", [one]))
        if first is not None and first < end:
            spans.append((one, int(first), int(end) - 1, int(end) - int(first)))
    width = max(ROWS_PER_PART_MIN, -(-sum(rows for *_, rows in spans) // options.partitions))
    parts: list[Part] = []
    ranges: list[Range] = []
    gathered = 0
    for one, first, last, rows in spans:
        for number_range in number_ranges("number", first, last, max(1, rows // width)):
            ranges.append(Range("queue_entry", (one, *number_range, *pushed)))
            gathered += min(rows, width)
            if gathered >= width:
                parts.append(Part(tuple(ranges)))
                ranges, gathered = [], 0
    return [*parts, Part(tuple(ranges))] if ranges else parts


def _by_number(database: Database, table: str, key: str, parts_max: int) -> list[tuple[str, ...]]:
    [(first, last)] = database.rows(select([f"min({key})", f"max({key})"], table))
    return [] if first is None else number_ranges(key, int(first), int(last), parts_max)


class _Key(msgspec.Struct, frozen=True):
    """An indexed column by which a business table can be cut.

    A table without one is one task.
    """

    name: str
    is_number: bool


def _business(options: ReadOptions, database: Database, engine: str) -> list[Part]:
    table = options.relation
    always = (f"{column(engine, options.gid_column)} is not null",) if options.kind is Kind.LEDGER else ()
    key = _key(options, database, engine)
    if key is None:
        ranges: list[tuple[str, ...]] = [()]
    elif key.is_number:
        ranges = _by_number(database, table, key.name, options.partitions)
    else:
        ranges = text_ranges(database, engine, table, key.name, options.partitions)
    absent = frozenset(_MAY_LACK - database.columns(table)) if options.kind is Kind.BARRIER else frozenset()
    return [Part((Range(table, (*one, *always)),), absent=absent) for one in ranges]


def _key(options: ReadOptions, database: Database, engine: str) -> _Key | None:
    table = options.relation
    if options.key_column:
        [(lowest,)] = database.rows(select([f"min({options.key_column})"], table))
        if not isinstance(lowest, int | str | None):
            raise ConfigurationError(f"Option keyColumn: {options.key_column} is neither a whole number nor a text.")
        if database.rows(select(["1"], table, [f"{options.key_column} is null"]) + " limit 1"):
            raise ConfigurationError(
                f"Option keyColumn: {options.key_column} is null in some rows, which no range of it has."
            )
        return None if lowest is None else _Key(options.key_column, isinstance(lowest, int))
    columns = database.columns(table)
    if options.kind is Kind.BARRIER:
        return _Key("id", is_number=True) if "id" in columns else None
    if engine == "sqlite":
        listed = "select 1 from pragma_table_list(?) where not wr and type <> 'view'"  # a view's rowid is null, or none
        has_rowid = bool(database.rows(listed, (table.rpartition(".")[2],))) and "rowid" not in columns
        return _Key("rowid", is_number=True) if has_rowid else None
    return (
        _Key(options.gid_column, is_number=False)
        if _is_indexed_text(database, engine, table, options.gid_column)
        else None
    )


def _is_indexed_text(database: Database, engine: str, table: str, column: str) -> bool:
    """Return True when a text column leads an index that holds every row."""
    schema, _, name = table.rpartition(".")
    if engine == "postgresql":
        found = database.rows(
            "select 1 from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0] "
            "join pg_type t on t.oid = a.atttypid "
            "where i.indrelid = to_regclass(?) and a.attname = ? and i.indpred is null and t.typcategory = 'S'",
            (table.lower(), column.lower()),
        )
    else:
        found = database.rows(
            "select 1 from information_schema.statistics s join information_schema.columns c "
            "using (table_schema, table_name, column_name) "
            "where s.table_schema = coalesce(nullif(?, ''), database()) and s.table_name = ? and s.column_name = ? "
            "and s.seq_in_index = 1 and c.data_type in ('char', 'varchar')",
            (schema, name, column),
        )
    return bool(found)
