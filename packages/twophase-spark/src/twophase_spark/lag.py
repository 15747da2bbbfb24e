"""The lag of a stream of the source, from the last report of its query."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class StreamLag(msgspec.Struct, frozen=True):
    """The rows that a stream had not read when its query reported last.

    `rows` is the number; `seconds` the age of the oldest of them by the driver's clock, 0 without one; `reported_at`
    the beginning of the batch that reported it. A query that waits for its store or its sink makes no report, so an old
    one is a lag of its own.
    """

    rows: int
    seconds: float
    reported_at: datetime


class _Left(msgspec.Struct):
    rows: int
    ms: int


class _End(msgspec.Struct):
    lag: _Left


def stream_lag(query: StreamingQuery) -> StreamLag | None:
    """See `twophase_spark.stream_lag`."""
    progress = query.lastProgress
    if progress is None:
        return None
    found = [left for left in (_left(source.latestOffset) for source in progress.sources) if left is not None]
    if not found:
        return None
    seconds = max(left.ms for left in found) / 1000
    return StreamLag(sum(left.rows for left in found), seconds, datetime.fromisoformat(progress.timestamp))


def _left(offset: str | None) -> _Left | None:
    """Return the lag in a source's last offset.

    Another source has none, and ours has none before its first batch.
    """
    try:
        return msgspec.json.decode(offset or "", type=_End).lag
    except msgspec.DecodeError:
        return None
