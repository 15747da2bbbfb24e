"""A look into a database before Spark is started.

So a wrong URL costs a second, not a minute. It also finds how to read it in parallel: slices of an integer key that has
an index. A range of a hash would read the whole table once per slice, so a table without such a key is one slice.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Sequence

import msgspec

from twophase.barrier.dialect import (
    BRANCH_HORIZON,
    DEFAULT_TABLE,
    HORIZON,
    IDENTITY,
    dialect_named,
    meta_row,
    meta_table,
)
from twophase.core.errors import CannotRead
from twophase_spark.locations import Location, Role
from twophase_spark.readers.database import Database, counting, open_database
from twophase_spark.readers.ids import Kind, codec_of, is_typed, kind_of

ROWS_PER_SLICE_MIN = 20_000
LOCAL_TIME_BEHIND_MS = 12 * 3600 * 1000
"""The largest difference by which a local time is behind UTC.

Barrier rows of branches are cleaned by their own times, which MySQL, and a table that dtm made on PostgreSQL, keep in
the local time of their writer. So rows may be gone that were written as long after the horizon.
"""
_BARRIER_COLUMNS = {"trans_type", "gid", "branch_id", "op", "barrier_id", "reason"}
_MESSAGE_COLUMNS = {"gid", "state", "created_ms", "decided_ms", "decided_by", "attempts", "parked", "body"}
ENTRIES = "queue_entry"
_STORE_TABLES = ("message", "history", "node", "store_meta")
_QUEUE_TABLES = (ENTRIES, "queue_counter", "queue_progress")
_HISTORY_COLUMNS = (_MESSAGE_COLUMNS - {"parked"}) | {"node", "seq", "finished_ms", "reason"}

HORIZON_SQL = "select max(value) from store_meta where name in ('history_horizon_ms', 'taken_over_ms')"
"""Birth before which messages may be unknown.

They may have been forgotten, or have ended at the coordinator that was here before.
"""
_CLOCKS = {
    "postgresql": "select (extract(epoch from clock_timestamp()) * 1000)::bigint",
    "mysql": "select timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', utc_timestamp(6)) div 1000",
}

# A node's first row, the next node's, and a node's last number: each one step into history's key (node, seq).
FIRST_NODE_SQL = "select node, seq from history order by node, seq limit 1"
NEXT_NODE_SQL = "select node, seq from history where node > ? order by node, seq limit 1"
LAST_SEQ_SQL = "select seq from history where node = ? order by seq desc limit 1"
_GID_SQL = "select {gid} from {table} where {key} = ?"


class Slice(msgspec.Struct, frozen=True):
    """A part of a table: where `first` ≤ `key` < `end`, each None for open.

    The whole table when `key` is empty. `node`: of history only, whose key is (node, seq). `rows`: how many it has at
    most; 0 where that is not known, as of live messages, which are few.
    """

    table: str
    key: str = ""
    first: int | None = None
    end: int | None = None
    node: int | None = None
    rows: int = 0


class Bound(msgspec.Struct, frozen=True):
    """The extent of a table: rows from `first` to `last` of its key.

    Of history, those of one `node`. `first` is above `last` when no row is left; `last` counts also rows that were
    cleaned since. `gid`: that of the row at `last`, empty where it is gone.
    """

    first: int
    last: int
    key: str
    node: int | None = None
    gid: str = ""


class Source(msgspec.Struct, frozen=True):
    """A location that was found readable.

    `identity`: of a business database, None when none was installed; `horizon_ms`: rows of messages born before it may
    have been cleaned, 0 for never; `has_prepared_at`, `has_body`: the barrier table has that column of twophase's;
    `skew_ms`: how far the database's clock is ahead of this machine's, 0 for SQLite, which has none of its own;
    `bounds`: the extent of its growing tables, empty when they have no key to follow; `gids`: the form of its gids;
    `is_typed`: each column that is read holds values of one type;
    `has_batches`: the Spark sink publishes from this database; `unspells`: a ledger of the audit keeps its gids as
    UUIDs, so that every side's are read in one spelling; `has_queues`: the store has queues; `codec`: the characters
    that its gids may have (`ids.codec_of`).
    """

    location: Location
    identity: str | None
    horizon_ms: int
    has_prepared_at: bool
    slices: tuple[Slice, ...]
    skew_ms: int = 0
    bounds: tuple[Bound, ...] = ()
    gids: Kind = Kind.TEXT
    has_body: bool = False
    has_batches: bool = False
    unspells: bool = False
    is_typed: bool = False
    has_queues: bool = False
    codec: str = ""


def probe(location: Location, slices_max: int) -> Source:
    """Look into the database: its tables, its horizon, its slices.

    It is cut into at most `slices_max` parts.

    Raises:
        CannotRead: no such database or table, or not the expected columns.
    """
    with open_database(location) as database:
        look = _coordinator if location.role is Role.COORDINATOR else _business
        return msgspec.structs.replace(look(location, database, slices_max), skew_ms=_skew_ms(location, database))


def probe_all(locations: Sequence[Location], slices_max: int) -> list[Source]:
    """Look into every database of an audit.

    Raises:
        CannotRead: see `probe`.
    """
    found = [probe(location, slices_max) for location in locations]
    unspells = any(source.location.role is Role.LEDGER and source.gids is Kind.UUID for source in found)
    return [msgspec.structs.replace(source, unspells=unspells) for source in found]


def horizon_ms(source: Source) -> int:
    """Return the present horizon.

    Read it *after* rows: a cleaner raises it in the transaction of its deletes.
    """
    with open_database(source.location) as database:
        return (
            _store_horizon(database)
            if source.location.role is Role.COORDINATOR
            else _meta(source.location, database)[1]
        )


def rows_in(sources: Iterable[Source]) -> int:
    """Return the number of rows to read of these sources, as far as it is known.

    There may be fewer, where keys have gaps.
    """
    return sum(part.rows for source in sources for part in source.slices)


def _coordinator(location: Location, database: Database, slices_max: int) -> Source:
    _require(location, database, "message", _MESSAGE_COLUMNS)
    _require(location, database, "history", _HISTORY_COLUMNS)
    bounds = _history_bounds(database)
    has_queues = bool(database.columns(ENTRIES))
    _require_all_rows(location, database, *_STORE_TABLES, *(_QUEUE_TABLES if has_queues else ()))
    slices = [Slice("message"), *([Slice(ENTRIES)] if has_queues else [])]
    for bound in bounds:
        slices += history_slices(bound, slices_max)
    return Source(
        location,
        None,
        _store_horizon(database),
        has_prepared_at=False,
        slices=tuple(slices),
        bounds=bounds,
        is_typed=True,
        has_queues=has_queues,
        codec=codec_of(location, database),
    )


def history_slices(bound: Bound, slices_max: int, *, after: bool = False) -> tuple[Slice, ...]:
    """Return a node's history, cut into slices; empty when it has no rows.

    `after`: rows before `bound.first` are left out.
    """
    if bound.first > bound.last:
        return ()
    parts = cut("history", "seq", bound.first, bound.last, slices_max)
    return tuple(
        msgspec.structs.replace(part, node=bound.node, first=part.first or (bound.first if after else None))
        for part in parts
    )


def _history_bounds(database: Database) -> tuple[Bound, ...]:
    """Return the extent of each node's history.

    A few steps into the index suffice: a group over all of history would read the whole of it.
    """
    given: dict[int, int] = {}
    if {"id", "seq"} <= database.columns("node"):
        given = {int(node): int(last) for node, last in database.rows("select id, seq from node")}
    bounds = {node: Bound(last + 1, last, "seq", node) for node, last in given.items()}
    found = database.rows(FIRST_NODE_SQL)
    while found:
        node, first = map(int, found[0])
        [(standing,)] = database.rows(LAST_SEQ_SQL, (node,))
        # The rows may end before the last number given: a purge may have left older rows behind.
        bounds[node] = Bound(first, max(int(standing), given.get(node, 0)), "seq", node)
        found = database.rows(NEXT_NODE_SQL, (node,))
    return tuple(
        msgspec.structs.replace(bounds[node], gid=gid_at(database, "history", "seq", bounds[node].last, node=node))
        for node in sorted(bounds)
    )


def gid_at(database: Database, table: str, key: str, at: int, *, gid: str = "gid", node: int | None = None) -> str:
    """Return the gid of the one row at a key, as a text that is equal for equal ones.

    It is empty for no row, and for several.
    """
    of_node = "" if node is None else f" and node = {int(node)}"
    found = database.rows(f"{_GID_SQL.format(gid=gid, table=table, key=key)}{of_node} limit 2", (at,))
    value = found[0][0] if len(found) == 1 else None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def _business(location: Location, database: Database, slices_max: int) -> Source:
    expected = _ledger_columns(location) if location.role is Role.LEDGER else _BARRIER_COLUMNS
    columns = _require(location, database, location.table, expected)
    _require_all_rows(location, database, location.table)
    if location.where:
        database.rows(f"select 1 from {location.table} where 1 = 1{counting(location)} limit 1")  # noqa: S608 -- the user's
    identity, horizon = _meta(location, database)
    gids = kind_of(location, database)
    key = _key(location, database, columns)
    slices: tuple[Slice, ...] = (Slice(location.table),)
    bounds: tuple[Bound, ...] = ()
    if key and location.key_column:
        without = f"select 1 from {location.table} where {key} is null{counting(location)} limit 1"  # noqa: S608 -- as below
        if database.rows(without):
            raise CannotRead(
                f"{location.role} {location.name}, {location.shown}: {key} is null in some rows, which no range of it "
                "has; name a key that every row has, or none."
            )
    if key:
        [(first, last)] = database.rows(f"select min({key}), max({key}) from {location.table}")  # noqa: S608 -- validated
        if isinstance(first, int) and isinstance(last, int):
            slices = cut(location.table, key, first, last, slices_max)
            gid = gid_at(database, location.table, key, last, gid=location.gid_column)
            bounds = (Bound(first, last, key, gid=gid),)
        elif first is None:
            bounds = (Bound(1, 0, key),)
        else:
            raise CannotRead(f"{location.role} {location.name}, {location.shown}: {key} is no integer column.")
    return Source(
        location,
        identity,
        horizon,
        "prepared_at" in columns,
        slices,
        bounds=bounds,
        gids=gids,
        has_body="body" in columns,
        has_batches=_has_batches(location, database),
        is_typed=all(is_typed(location, database, column) for column in _ids_of(location)),
        codec=codec_of(location, database),
    )


def batch_tables(table: str) -> dict[str, str]:
    """Return the names of the Spark sink's tables beside a barrier table.

    >>> batch_tables("pay.barrier")["runs"]
    'pay.twophase_spark_writer'
    """
    schema, dot, _ = table.rpartition(".")
    names = {"batches": "batch", "runs": "writer", "messages": "message"}
    return {name: f"{schema}{dot}twophase_spark_{end}" for name, end in names.items()}


def _has_batches(location: Location, database: Database) -> bool:
    if location.role is not Role.PRODUCER or location.table.rpartition(".")[2] != DEFAULT_TABLE:
        return False
    tables = batch_tables(location.table).values()
    has_batches = all(map(database.columns, tables))
    if has_batches:
        _require_all_rows(location, database, *tables)
    return has_batches


def _ledger_columns(location: Location) -> set[str]:
    return {location.gid_column, location.branch_column} | ({location.key_column} if location.key_column else set())


def _ids_of(location: Location) -> tuple[str, ...]:
    if location.role is Role.LEDGER:
        return location.gid_column, location.branch_column
    return "gid", "branch_id", "reason"


def _require(location: Location, database: Database, table: str, expected: set[str]) -> frozenset[str]:
    columns = database.columns(table)
    if not columns:
        if database.is_hidden(table):
            raise CannotRead(f"{location.role} {location.name}, {location.shown}: this user may not read {table}.")
        remedy = "is this a coordinator's store?" if location.role is Role.COORDINATOR else "name another one behind #."
        raise CannotRead(f"{location.role} {location.name}, {location.shown}: there is no table {table}; {remedy}")
    missing = sorted({name.lower() for name in expected} - columns)
    if missing:
        raise CannotRead(f"{location.role} {location.name}, {location.shown}: table {table} has no column {missing}.")
    return columns


def _require_all_rows(location: Location, database: Database, *tables: str) -> None:
    """Refuse tables of which this user sees some rows only.

    The others would look like lost messages.
    """
    for table in filter(database.hides_rows, tables):
        raise CannotRead(
            f"{location.role} {location.name}, {location.shown}: row-level security hides rows of {table} from this "
            "user; read as a user with BYPASSRLS. (A view reads as its owner, unless it has security_invoker.)"
        )


def _skew_ms(location: Location, database: Database) -> int:
    sql = _CLOCKS.get(location.engine)
    if sql is None:
        return 0
    before_ms = time.time_ns() // 1_000_000
    [(now_ms,)] = database.rows(sql)
    after_ms = time.time_ns() // 1_000_000
    return int(now_ms) - (before_ms + after_ms) // 2


def _store_horizon(database: Database) -> int:
    if not database.columns("store_meta"):
        return 0
    [(horizon,)] = database.rows(HORIZON_SQL)
    return int(horizon or 0)


def _meta(location: Location, database: Database) -> tuple[str | None, int]:
    meta = meta_table(location.table)
    if location.role is Role.LEDGER:
        return None, 0
    if not database.columns(meta):
        if database.is_hidden(meta):
            raise CannotRead(
                f"{location.role} {location.name}, {location.shown}: this user may not read {meta}, which has the "
                "horizon up to which rows were cleaned; grant SELECT on it, or on the whole schema if there is none."
            )
        return None, 0
    _require_all_rows(location, database, meta)
    found: dict[str, str] = {
        str(name): str(value)
        for name, value in database.rows(f"select name, value from {meta}")  # noqa: S608 -- validated
    }
    dialect = dialect_named(location.engine)
    assert dialect is not None, "what is no barrier's database has no meta table"
    identity, *names = (meta_row(row, location.table, dialect.name) for row in (IDENTITY, HORIZON, BRANCH_HORIZON))
    of_producers, of_branches = (int(found.get(name, 0)) for name in names)
    if of_branches and _has_local_times(location, database):
        of_branches += LOCAL_TIME_BEHIND_MS
    return found.get(identity), max(of_producers, of_branches)


def _has_local_times(location: Location, database: Database) -> bool:
    is_local = location.engine == "postgresql" and database.type_of(location.table, "create_time") == "timestamp"
    return location.engine == "mysql" or is_local


def _key(location: Location, database: Database, columns: frozenset[str]) -> str:
    if location.role is not Role.LEDGER:
        return "id" if "id" in columns else ""
    if location.key_column:
        return location.key_column
    if location.engine == "sqlite" and "rowid" not in columns and not _is_view(location, database):
        with contextlib.suppress(CannotRead):  # a table WITHOUT ROWID
            database.rows(f"select rowid from {location.table} limit 1")  # noqa: S608 -- validated
            return "rowid"
    return ""


def _is_view(location: Location, database: Database) -> bool:
    """Return True for a view of SQLite.

    Its rowid is null in some builds of SQLite, and an error in others.
    """
    name = location.table.rpartition(".")[2]
    sql = "select 1 from sqlite_master where type = 'view' and lower(name) = lower(?)"
    return bool(database.rows(sql, (name,)))


def cut(table: str, key: str, first: int, last: int, slices_max: int) -> tuple[Slice, ...]:
    """Return the range from `first` to `last` in equal parts, open at both ends.

    So rows added meanwhile are read too.

    >>> [(part.first, part.end) for part in cut("t", "id", 1, 60_000, 3)]
    [(None, 20001), (20001, 40001), (40001, None)]
    >>> [part.rows for part in cut("t", "id", 1, 500, 8)]
    [500]
    """
    width = last - first + 1
    count = max(1, min(slices_max, width // ROWS_PER_SLICE_MIN))
    bounds = [None, *(first + width * part // count for part in range(1, count)), None]
    return tuple(Slice(table, key, begin, end, rows=-(-width // count)) for begin, end in itertools.pairwise(bounds))
