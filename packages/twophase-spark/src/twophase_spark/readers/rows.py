"""The rows of each table as Arrow batches of `schemas`.

They are read by slice for the first pass, by gid for the second. Slices come through ADBC where it fits, as the
source's rows do; else, and by gid, through the database's driver, whose values become Arrow here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twophase.core.errors import CannotRead
from twophase_spark.garbage import collecting_nothing
from twophase_spark.locations import Role
from twophase_spark.readers import journal
from twophase_spark.readers.database import ROWS_PER_LOT, Database, counting, open_database, reported
from twophase_spark.readers.ids import Kind, asked_for, in_one_spelling, is_given, spellings_of, unusually_spelled
from twophase_spark.readers.probe import ENTRIES, Slice, Source, batch_tables
from twophase_spark.readers.snapshot import ADBC, has_adbc, open_snapshot
from twophase_spark.schemas import BRANCHES_UNKNOWN, EFFECT, JOURNAL, PRODUCER

GIDS_PER_STATEMENT = 2_500
_FILLED = pc.MatchSubstringOptions("\0")
CLOCKS_APART_MS = 5 * 60_000
"""Bound on the difference between an executor's clock and the coordinator's.

It is the bound of a move from another coordinator, too.
"""

_MESSAGE_SQL = (
    "select gid, state, created_ms, decided_ms, cast(null as bigint) as finished_ms, decided_by, '' as reason, "
    "attempts, parked, {entries}, body from message where {where}"
)
_HISTORY_SQL = (
    "select gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, 0 as parked, {entries}, "
    "body from history where {where}"
)
_ENTRIES_SQL = (
    "coalesce((select {places} from queue_entry where queue_entry.gid = {table}.gid), '') as entries, "
    "decided_ms < coalesce((select value from store_meta where name = 'queue_horizon_ms'), 0) as cleaned"
)
"""A message's entries, read with it.

One statement sees one moment, and the commit that decides a message has its entries. So whatever comes or goes beside a
read, a message and what it lacks in queues are of the same moment, in the first look too.
"""
_NO_QUEUES_SQL = "'' as entries, 1 as cleaned"
"""The same, where an older coordinator made the store."""
_NO_MESSAGE_SQL = (
    "select gid, 0 as state, min(stored_ms) as created_ms, min(stored_ms) as decided_ms, "
    "cast(null as bigint) as finished_ms, '' as decided_by, '' as reason, 0 as attempts, 0 as parked, "
    "{places} as entries, 0 as cleaned, {nothing} as body from queue_entry where {where} "
    "and not exists (select 1 from message where message.gid = queue_entry.gid) "
    "and not exists (select 1 from history where history.gid = queue_entry.gid) group by gid"
)
"""Entries without a message: it is never removed before them."""
_PLACES = {"sqlite": "group_concat(branch)", "postgresql": "string_agg(cast(branch as text), ',')"}
_NOTHING = {"sqlite": "x''", "postgresql": "cast('' as bytea)"}
_PRODUCER_SQL = (
    "select gid, {reason} as reason, {prepared} as prepared_ms from {table} "
    "where {where} and trans_type = 'msg' and branch_id = '00' and op = 'msg' and barrier_id = '01'"
)
_NO_BATCH_SQL = " and not exists (select 1 from {batches} batch where batch.group_id = {table}.gid)"
"""The Spark sink's own row of a batch is no message's."""
_PUBLISHED_SQL = (
    "select published.gid, "
    "case when decision.reason = 'msg' and run.won = 1 then 'msg' else 'rollback' end as reason, "
    "batch.begun_ms - {apart_ms} as prepared_ms "
    "from {table} decision "
    "join {batches} batch on batch.group_id = decision.gid "
    "join {runs} run on run.group_id = batch.group_id "
    "join {messages} published on published.writer = run.writer "
    "where {where} and decision.trans_type = 'msg' and decision.branch_id = '00' and decision.op = 'msg' "
    "and decision.barrier_id = '01' "
    "and ((decision.reason = 'msg' and run.won = 1) or decision.reason = 'rollback' or batch.given_up_ms is not null)"
)
"""Producer's rows of the Spark sink's messages.

They are the decisions of the batches that hold a message. A run that did not count has decided nothing, until its batch
is given up. A batch begins by the clock of an executor, so its messages were born no earlier than a margin before.
"""
_REASON_SQL = f"case when reason = 'msg' and length(body) = 0 then '{BRANCHES_UNKNOWN}' else reason end"
_CONSUMER_SQL = (
    "select gid, branch_id from {table} "
    "where {where} and trans_type = 'msg' and op = 'action' and coalesce(reason, '') <> 'unfinished'"
)
_AS_TYPED = {
    "gid": "cast(gid as text) as gid",
    "branch_id": "coalesce(cast(branch_id as text), '') as branch_id",
    "reason": "coalesce(cast(reason as text), '') as reason",
    "prepared_ms": "prepared_ms",
}
"""Columns of business databases for ADBC: each of one type, which no null hides.

A branch or reason that is null means what an empty one means.
"""
_LEDGER_SQL = "select {gid} as gid, {branch} as branch_id from {table} where {where} and {given}{counts}"


def arrow_schema(role: Role) -> pa.Schema:
    """Return the schema of the rows in a role's databases."""
    if role is Role.COORDINATOR:
        return JOURNAL
    return PRODUCER if role is Role.PRODUCER else EFFECT


def read_slice(source: Source, part: Slice, *, is_shared: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one slice, in a snapshot of its own.

    Arguments:
        is_shared: the program of this process may have the same database open. ADBC has a SQLite library of its own,
            and of two in one process each releases the other's locks on a file, so Python's is used.
    """
    where = condition_of(part)
    is_unsafe = is_shared and source.location.engine == "sqlite"
    if source.is_typed and has_adbc(source.location.engine) and not is_unsafe:
        yield from _read_by_adbc(source, part.table, where)
        return
    with open_database(source.location) as database:
        yield from _read(source, database, part.table, where, ())
        if source.has_batches:
            yield from _published(source, database, where, ())


def read_gids(source: Source, gids: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the given gids.

    All tables are read in one snapshot, so that no message is seen between two of them.
    """
    tables = (source.location.table,)
    if source.location.role is Role.COORDINATOR:
        tables = ("message", "history", *((ENTRIES,) if source.has_queues else ()))
    column = source.location.gid_column if source.location.role is Role.LEDGER else "gid"
    with open_database(source.location) as database:
        for some in values_of(source, gids):
            for table in tables:
                marks = ", ".join("?" * len(some))
                yield from asked_only(source, gids, _read(source, database, table, f"{column} in ({marks})", some))
                if source.has_batches:
                    yield from _published(source, database, f"published.gid in ({marks})", some)


def asked_only(source: Source, gids: Sequence[str], found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield those of the rows that have one of these gids.

    A collation may find others, too: in capitals, with other accents, or with spaces at the end.
    """
    if source.unspells or source.gids not in {Kind.TEXT, Kind.CHAR, Kind.ANY}:
        yield from found
        return
    asked = pc.SetLookupOptions(pa.array(gids, pa.string()))
    for batch in found:
        yield batch.filter(pc.call_function("is_in", [batch.column("gid")], asked))


def condition_of(part: Slice) -> str:
    """Return the condition in SQL of the rows of a slice."""
    bounds = (("node =", part.node), (f"{part.key} >=", part.first), (f"{part.key} <", part.end))
    return " and ".join(f"{condition} {int(value)}" for condition, value in bounds if value is not None) or "1 = 1"


def values_of(source: Source, gids: Sequence[str]) -> Iterator[list[object]]:
    """Yield these gids as values of the source's column, in lots for a statement each.

    Those that the column cannot hold are left out.
    """
    for start in range(0, len(gids), GIDS_PER_STATEMENT):
        chosen = gids[start : start + GIDS_PER_STATEMENT]
        if source.unspells and source.gids is not Kind.UUID:
            chosen = spellings_of(chosen)
        if some := asked_for(chosen, source.gids, source.location.engine, source.codec):
            yield some


def effects_of(source: Source, gids: Sequence[Any], branches: Sequence[Any]) -> pa.RecordBatch:
    """Return a ledger's ids as rows of `schemas.EFFECT`."""
    return _batch(source, source.location.table, [[source.location.name] * len(gids), gids, branches])


def _read_by_adbc(source: Source, table: str, where: str) -> Iterator[pa.RecordBatch]:
    location = source.location
    statements = [_statement(source, table, where, counting(location, escaped=False))]
    if source.has_batches:
        statements.append(_published_statement(table, where))
    if location.role is not Role.COORDINATOR:
        names = ", ".join(_AS_TYPED[name] for name in arrow_schema(location.role).names if name != "source")
        statements = [f"select {names} from ({statement}) as typed" for statement in statements]  # noqa: S608 -- as below
    with open_snapshot(location, ADBC) as run:
        for statement in statements:
            for raw in run(statement, {}):
                for start in range(0, raw.num_rows, ROWS_PER_LOT):
                    yield _typed(source, table, raw.slice(start, ROWS_PER_LOT))


def _typed(source: Source, table: str, raw: pa.RecordBatch) -> pa.RecordBatch:
    location = source.location
    with collecting_nothing(), reported(location):
        if location.role is Role.COORDINATOR:
            *stored, entries, cleaned, bodies = raw.columns
            made = journal.columns_of(stored, entries.to_pylist(), cleaned, bodies.to_pylist())
            return _batch(source, table, [pa.repeat(location.name, raw.num_rows), *made])
        return _batch(source, table, [pa.repeat(location.name, raw.num_rows), *raw.columns])


def _read(
    source: Source, database: Database, table: str, where: str, parameters: Sequence[object]
) -> Iterator[pa.RecordBatch]:
    yield from _rows(source, database, table, _statement(source, table, where, counting(source.location)), parameters)


def _published(
    source: Source, database: Database, where: str, parameters: Sequence[object]
) -> Iterator[pa.RecordBatch]:
    """Yield the producer's rows of what the Spark sink published from this database."""
    table = source.location.table
    yield from _rows(source, database, table, _published_statement(table, where), parameters)


def _rows(
    source: Source, database: Database, table: str, statement: str, parameters: Sequence[object]
) -> Iterator[pa.RecordBatch]:
    location = source.location
    for lot in database.lots(statement, parameters):
        with collecting_nothing():
            if location.role is Role.COORDINATOR:
                *stored, parked, entries, cleaned, bodies = zip(*lot, strict=True)
                flags = [list(map(bool, column)) for column in (parked, cleaned)]
                made = journal.columns_of([*stored, flags[0]], entries, flags[1], bodies)
                batch = _batch(source, table, [[location.name] * len(lot), *made])
            else:
                batch = _batch(source, table, [[location.name] * len(lot), *zip(*lot, strict=True)])
        yield batch


def _batch(source: Source, table: str, columns: Sequence[Sequence[Any] | pa.Array]) -> pa.RecordBatch:
    schema = arrow_schema(source.location.role)
    arrays = [_array(source, table, field, column) for column, field in zip(columns, schema, strict=True)]
    if source.location.role is Role.LEDGER:
        for one, field in zip(arrays[1:], list(schema)[1:], strict=True):
            if pc.call_function("any", [pc.call_function("ends_with", [one], _FILLED)]).as_py():
                raise CannotRead(
                    f"{_named(source)}: table {table} has a {field.name} that ends with a zero byte, as binary(n) "
                    "fills up a shorter id; make the column varbinary, or name a view that trims it."
                )
        # A char(n) column is filled up with spaces, and compares without them. In other columns a gid is found again
        # only if its text is unchanged.
        filled = arrays[1:] if source.gids is Kind.CHAR else arrays[2:]
        arrays[-len(filled) :] = [pc.call_function("utf8_rtrim", [one], pc.TrimOptions(" ")) for one in filled]
        # A number has no leading zero, and every branch id has two digits or more.
        one_digit = pc.ReplaceSubstringOptions("^([0-9])$", r"0\1")
        arrays[2] = pc.call_function("replace_substring_regex", [arrays[2]], one_digit)
    place = schema.get_field_index("gid")
    gids = arrays[place]
    if source.unspells:
        odd = unusually_spelled(gids)
        if odd is not None:
            raise CannotRead(
                f"{_named(source)}: table {table} has the gid {odd}, a UUID with capitals and small letters or some of "
                "its dashes. A ledger keeps UUIDs without their spelling, and only usual ones are found again.",
                remedy="Name a view of that ledger whose gid is the text that was sent; give messages gids in one "
                "spelling.",
            )
        arrays[place] = in_one_spelling(gids)
    if gids.null_count:
        raise CannotRead(
            f"{_named(source)}: table {table} has rows without a gid (null); they can be compared with nothing."
        )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(source: Source, table: str, field: pa.Field, column: Sequence[Any] | pa.Array) -> pa.Array:
    """Return a column of a database's values; ids of any type become text.

    Raises:
        CannotRead: a value is of another type, so that comparing it would give nonsense.
    """
    try:
        if isinstance(column, pa.Array):
            whole: Any = column  # no type checker sees what Arrow's arrays can do
            typed = whole.cast(field.type)
            typed.validate(full=True)  # SQLite's texts are bytes, which need be no text
            return typed
        return pa.array(column, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        if pa.types.is_string(field.type) and not isinstance(column, pa.Array):
            try:
                return pa.array([_text(value) for value in column], type=field.type)
            except (UnicodeDecodeError, TypeError):
                pass
        kind = _kind_in(column, field.type)
        raise CannotRead(
            f"{_named(source)}: table {table} holds values of a wrong type for {field.name}: {kind} instead of "
            f"{field.type}."
        ) from error


def _kind_in(column: Sequence[Any] | pa.Array, kind: pa.DataType) -> str:
    """Return the type of a column's values that do not fit."""
    if isinstance(column, pa.Array):
        found: pa.DataType = pa.array(column).type
        return "bytes" if found == kind else str(found)
    return next((type(value).__name__ for value in column if not _fits(value, kind)), "?")


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        pa.scalar(_text(value) if pa.types.is_string(kind) else value, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
        return False
    return True


def _named(source: Source) -> str:
    location = source.location
    return f"{location.role} {location.name}, {location.shown}"


def _statement(source: Source, table: str, where: str, counts: str) -> str:
    location = source.location
    if location.role is Role.COORDINATOR:
        return _of_coordinator(source, table, where)
    if location.role is Role.PRODUCER:
        prepared = "prepared_at" if source.has_prepared_at else "null"
        reason = _REASON_SQL if source.has_body else "reason"
        statement = _PRODUCER_SQL.format(table=table, where=where, reason=reason, prepared=prepared)
        return statement + (_NO_BATCH_SQL.format(table=table, **batch_tables(table)) if source.has_batches else "")
    if location.role is Role.CONSUMER:
        return _CONSUMER_SQL.format(table=table, where=where)
    given = is_given(location.gid_column, source.gids)
    columns = {"gid": location.gid_column, "branch": location.branch_column}
    return _LEDGER_SQL.format(table=table, where=where, given=given, counts=counts, **columns)


def _published_statement(table: str, where: str) -> str:
    return _PUBLISHED_SQL.format(table=table, where=where, apart_ms=CLOCKS_APART_MS, **batch_tables(table))


def _of_coordinator(source: Source, table: str, where: str) -> str:
    engine = source.location.engine
    places = _PLACES.get(engine, "")
    if table == ENTRIES:
        return _NO_MESSAGE_SQL.format(places=places, nothing=_NOTHING[engine], where=where)
    entries = _ENTRIES_SQL.format(places=places, table=table) if source.has_queues else _NO_QUEUES_SQL
    return (_MESSAGE_SQL if table == "message" else _HISTORY_SQL).format(entries=entries, where=where)


def _text(value: object) -> str | None:
    """Return an id as text.

    A ledger may keep its ids in any column type that has one form of text; gids are text.

    Raises:
        TypeError: a number with a fraction, a list or the like: no id.
        UnicodeDecodeError: bytes that are no text.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    if isinstance(value, (int, uuid.UUID)) and not isinstance(value, bool):
        return str(value)
    raise TypeError(type(value).__name__)
