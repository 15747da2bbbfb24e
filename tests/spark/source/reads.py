"""Reading without Spark: the reader's own methods, as Spark calls them."""

from __future__ import annotations

import pickle
from typing import Any

from twophase_spark.source.data_source import TwophaseSource
from twophase_spark.source.stream import Offset, StreamReader


def batch(**options: object) -> list[dict[str, Any]]:
    """Return the rows of a batch read; parts travel as Spark sends them."""
    return [row for part in parts(**options) for row in part]


def parts(**options: object) -> list[list[dict[str, Any]]]:
    """Return the rows of each part."""
    source = TwophaseSource({name: str(value) for name, value in options.items()})
    reader = source.reader(source.schema())
    planned = reader.partitions()
    sent: Any = pickle.loads(pickle.dumps(reader))
    return [rows_of(sent, pickle.loads(pickle.dumps(part))) for part in planned]


def stream(**options: object) -> StreamReader:
    """Return a stream's reader."""
    source = TwophaseSource({name: str(value) for name, value in options.items()})
    return source.streamReader(source.schema())


def rows_of(reader: Any, part: Any) -> list[dict[str, Any]]:
    """Return the rows that a task reads."""
    return [row for one in reader.read(part) for row in one.to_pylist()]


def between(reader: StreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    """Return the rows of one batch of a stream."""
    return [row for part in reader.partitions(start, end) for row in rows_of(reader, part)]


def planned(**options: object) -> tuple[Any, list[Any]]:
    """Return a reader and its parts, not yet read."""
    source = TwophaseSource({name: str(value) for name, value in options.items()})
    reader = source.reader(source.schema())
    return reader, list(reader.partitions())
