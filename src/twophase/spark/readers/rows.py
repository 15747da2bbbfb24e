"""The rows of each table as Arrow batches of `schemas`: by slice for the first pass, by gid for the second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pyarrow as pa

from twophase.core import message as codec
from twophase.spark.locations import Role
from twophase.spark.readers.database import Database, open_database
from twophase.spark.readers.probe import Slice, Source
from twophase.spark.schemas import EFFECT, JOURNAL, PRODUCER

GIDS_PER_STATEMENT = 5_000
IDENTITY_PARAMETER = "barrier"

_MESSAGE_SQL = (
    "select gid, state, created_ms, decided_ms, null, decided_by, '', attempts, parked, body from message where {where}"
)
_HISTORY_SQL = (
    "select gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, 0, body "
    "from history where {where}"
)
_PRODUCER_SQL = (
    "select gid, reason, {prepared} from {table} "
    "where {where} and trans_type = 'msg' and branch_id = '00' and op = 'msg' and barrier_id = '01'"
)
_CONSUMER_SQL = "select gid, branch_id from {table} where {where} and trans_type = 'msg' and op = 'action'"
_LEDGER_SQL = "select {gid}, {branch} from {table} where {where} and {gid} is not null"


def arrow_schema(role: Role) -> pa.Schema:
    """The schema of what a role's databases hold."""
    if role is Role.COORDINATOR:
        return JOURNAL
    return PRODUCER if role is Role.PRODUCER else EFFECT


def read_slice(source: Source, part: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of one slice, in a snapshot of its own."""
    conditions: list[str] = []
    parameters: list[object] = []
    for condition, value in (("node = ?", part.node), (f"{part.key} >= ?", part.first), (f"{part.key} < ?", part.end)):
        if value is not None:
            conditions.append(condition)
            parameters.append(value)
    with open_database(source.location) as database:
        yield from _read(source, database, part.table, " and ".join(conditions) or "1 = 1", parameters)


def read_gids(source: Source, gids: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of the given gids: all tables in one snapshot, so that no message is seen between two of them."""
    tables = ("message", "history") if source.location.role is Role.COORDINATOR else (source.location.table,)
    column = source.location.gid_column if source.location.role is Role.LEDGER else "gid"
    with open_database(source.location) as database:
        for start in range(0, len(gids), GIDS_PER_STATEMENT):
            some = gids[start : start + GIDS_PER_STATEMENT]
            for table in tables:
                yield from _read(source, database, table, f"{column} in ({', '.join('?' * len(some))})", some)


def _read(
    source: Source, database: Database, table: str, where: str, parameters: Sequence[object]
) -> Iterator[pa.RecordBatch]:
    location = source.location
    schema = arrow_schema(location.role)
    for lot in database.lots(_statement(source, table, where), parameters):
        if location.role is Role.COORDINATOR:
            rows: Iterable[Sequence[Any]] = map(_journal_row, lot)
        else:
            rows = ((location.name, *map(_text, row[:2]), *row[2:]) for row in lot)
        columns = list(zip(*rows, strict=True))
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )


def _statement(source: Source, table: str, where: str) -> str:
    location = source.location
    if location.role is Role.COORDINATOR:
        return (_MESSAGE_SQL if table == "message" else _HISTORY_SQL).format(where=where)
    if location.role is Role.PRODUCER:
        prepared = "prepared_at" if source.has_prepared_at else "null"
        return _PRODUCER_SQL.format(table=table, where=where, prepared=prepared)
    if location.role is Role.CONSUMER:
        return _CONSUMER_SQL.format(table=table, where=where)
    return _LEDGER_SQL.format(table=table, where=where, gid=location.gid_column, branch=location.branch_column)


def _text(value: object) -> str | None:
    """A ledger may keep its keys in any type; gids are text."""
    return value if value is None or isinstance(value, str) else str(value)


def _journal_row(row: Sequence[Any]) -> tuple[Any, ...]:
    gid, state, created, decided, finished, decided_by, reason, attempts, parked, body = row
    known = (gid, state, created, decided, finished, decided_by, reason, attempts, bool(parked))
    try:
        message = codec.decode(bytes(body))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return (*known, 0, None, None, None)
    branches = [
        {"branch_id": message.branch_id(index), "url": branch.url} for index, branch in enumerate(message.branches)
    ]
    return (*known, message.options.delay_ms, bool(message.check_url), identity_in(message.check_url), branches)


def identity_in(check_url: str) -> str | None:
    """The identity of the producer's database in its check address; None for a foreign producer's.

    >>> identity_in("http://bank-a/check?barrier=7f3a"), identity_in("http://bank-a/check")
    ('7f3a', None)
    """
    try:
        found = parse_qs(urlsplit(check_url).query).get(IDENTITY_PARAMETER)
    except ValueError:
        return None
    return found[-1] if found else None
