"""The progress of a publisher, from its ledger.

A sink of Python can write nothing into the progress of a query, and Spark reports only at the end of a batch. The
ledger knows a batch from its first row on, also while the coordinator does not answer.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from twophase_spark.sink.database import checked_reference, engine_of
from twophase_spark.sink.ledger import Decision, Ledger

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class SinkProgress(msgspec.Struct, frozen=True):
    """The latest batch of a publisher.

    `batch` is its number, None for a `write`; `query` the id of its query. `decision` is `undecided`, `published` or
    `given up`. `messages` are published with it, 0 before; `contrary` of them had failed before, by an operator's act.
    `left_out` rows had keys that were published or given up before; it stays None until the query reports the batch.
    `published_at` stays None until all messages are submitted. `waiting_s` counts the seconds since the batch began, by
    this machine's clock; it is 0 when the batch is finished.
    """

    publisher: str
    query: str
    batch: int | None
    decision: str
    begun_at: datetime
    published_at: datetime | None
    messages: int
    contrary: int
    left_out: int | None
    waiting_s: float


def sink_progress(ledger: str, publisher: str, query: StreamingQuery | None) -> SinkProgress | None:
    """See `twophase_spark.sink_progress`."""
    latest = Ledger(engine_of(checked_reference(ledger))).latest(publisher)
    if latest is None:
        return None
    is_finished = latest.decision is Decision.GIVEN_UP or latest.published_ms is not None
    rows = None if query is None or query.id != latest.query else _rows_of(query, latest.number)
    return SinkProgress(
        publisher=publisher,
        query=latest.query,
        batch=latest.number if latest.query else None,
        decision=latest.decision.value,
        begun_at=_time(latest.begun_ms),
        published_at=None if latest.published_ms is None else _time(latest.published_ms),
        messages=latest.messages,
        contrary=latest.contrary,
        left_out=None if rows is None else rows - latest.messages,
        waiting_s=0.0 if is_finished else max(0.0, time.time() - latest.begun_ms / 1000),
    )


def _rows_of(query: StreamingQuery, batch: int) -> int | None:
    """Return the number of rows that Spark handed to the sink in a batch.

    It is unknown before the batch's report. The last report may be of a trigger that found no rows.
    """
    return next((one.sink.numOutputRows for one in reversed(query.recentProgress) if one.batchId == batch), None)


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
