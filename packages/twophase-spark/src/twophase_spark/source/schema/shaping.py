"""The conversion of a database's values to exactly Spark's columns.

It makes names of states, exact types, and nulls.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from twophase.core.errors import CannotRead
from twophase_spark.source.schema import body
from twophase_spark.source.schema.sql import BODY
from twophase_spark.source.schema.tables import COLUMNS, MS_OF_TIME, STATE_NAMES, Kind


def _texts(values: Sequence[str]) -> pa.StringArray:
    """Return texts as `pa.array` would make them, without its search for pandas.

    That search takes 0.3 s of every process that only plans a read.
    """
    data = [value.encode() for value in values]
    offsets = array("i", itertools.accumulate(map(len, data), initial=0))
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(b"".join(data)))


_STATES = _texts(STATE_NAMES)
_LAST_MS = 253_402_300_799_999
_CARRIED = {"state": pa.int32(), "parked": None, BODY: pa.binary()}


def carried_types(kind: Kind) -> dict[str, pa.DataType]:
    """Return the types of a driver's values before they are shaped."""
    types = {column.name: column.type for column in COLUMNS[kind]} | _CARRIED
    return {name: one for name, one in types.items() if one is not None}


def shape(batch: pa.RecordBatch, target: pa.Schema, may_lack: frozenset[str] = frozenset()) -> pa.RecordBatch:
    """Return the batch with the columns of `target`.

    A column that it may lack, and does, is null.

    Raises:
        CannotRead: a column is not there, or holds what its type cannot; the column is named, no value is.
    """
    names = set(batch.schema.names)
    lacking = [name for name in target.names if name not in names and name in body.NAMES]
    # A ledger may have a column `body` of its own; it lacks nothing. A lake keeps bodies beside the columns made of
    # them.
    made = body.columns_of(_binary(batch.column(BODY)), lacking) if lacking and BODY in names else {}
    columns = []
    for field in target:
        if field.name in made:
            column = made[field.name]
        elif field.name in MS_OF_TIME and MS_OF_TIME[field.name] in names and pa.types.is_timestamp(field.type):
            column = _timestamps(batch.column(MS_OF_TIME[field.name]))
        elif field.name in names:
            column = _converted(batch.column(field.name), field)
        elif field.name in may_lack:
            column = pa.nulls(batch.num_rows, field.type)
        else:
            raise CannotRead(f"Column {field.name} was asked for; the database answered {', '.join(sorted(names))}.")
        columns.append(column if column.type == field.type else _cast(column, field))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if field.name == "state" and pa.types.is_integer(column.type) and pa.types.is_string(field.type):
        try:
            return _STATES.take(column)
        except pa.ArrowIndexError:
            raise CannotRead(
                "Column state holds a number that is no state; was the table written by twophase?"
            ) from None
    return column


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    """Return milliseconds since 1970 as timestamps.

    A number that is no time of the years 1970 to 9999 becomes null.
    """
    import pyarrow.compute  # noqa: PLC0415 -- slow to import, and planning a read has no times

    compute: Any = pyarrow.compute  # its functions are made when it is imported; no type checker sees them
    numbers = milliseconds.cast(pa.int64())
    is_time = compute.and_(compute.greater_equal(numbers, 0), compute.less_equal(numbers, _LAST_MS))
    times = compute.if_else(is_time, numbers, pa.scalar(None, pa.int64()))
    return times.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _binary(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else _cast(column, pa.field(BODY, pa.binary()))


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise CannotRead(f"Column {field.name} holds {column.type}, which is not always {field.type}.") from None
