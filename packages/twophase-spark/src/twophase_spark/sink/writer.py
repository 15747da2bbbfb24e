"""The sink as Spark knows it: one writer for `write`, one for `writeStream`.

Spark's repetitions are not symmetric (reference of this package's page): a `write` is never repeated as a whole, so
each is a batch of its own; a streaming batch comes back with its number, also after `abort`, so `abort` decides nothing
there and nothing is ever rolled back automatically.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from twophase.core.errors import ConfigurationError
from twophase_spark.lineage.batches import PublishedBatch, batch_sent
from twophase_spark.sink.batch import publish
from twophase_spark.sink.database import engine_of, install_ledger
from twophase_spark.sink.ledger import Batch, Decision, Ledger
from twophase_spark.sink.naming import run_batch, stream_batch
from twophase_spark.sink.options import Publishing, parse
from twophase_spark.sink.rows import require_columns
from twophase_spark.sink.task import Written, write

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN_BYTES = 16
_log = logging.getLogger("twophase.spark")


class BatchWriter(DataSourceArrowWriter):
    """The writer for `write`.

    It is pickled once: tasks and `commit` see the values that `__init__` sets.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Check everything that can be checked, and make the ledger where it is missing.

        Raises:
            ConfigurationError: options or columns cannot work. LedgerUnavailable.
        """
        self._publishing = parse(options)
        self._schema = schema
        self._check_url = _opened(self._publishing, schema)
        publisher = self._publishing.publisher
        self._batch = Batch(run_batch(publisher, os.urandom(_RUN_BYTES)), publisher)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Run a task."""
        return write(self._publishing, self._schema, self._check_url, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the batch: all tasks have written."""
        _published(self._publishing, messages, is_streamed=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's signature
        """Handle the final failure of a task."""
        group = self._batch.group
        if not self._publishing.abandons_failed:
            _log.warning("batch %s failed; what it prepared waits for another try", group)
            return
        decision = Ledger(engine_of(self._publishing.ledger)).give_up(group)
        if decision is Decision.PUBLISHED:
            _log.warning("batch %s was decided before it failed: it is published, and check-backs finish it", group)
        elif decision is Decision.OPEN:
            _log.warning("batch %s failed, and could not be given up now; what it prepared waits", group)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer for `writeStream`.

    `commit` runs in another process, with another instance: it knows only the messages of the tasks.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Check the options, and make the ledger; see `BatchWriter`."""
        self._publishing = parse(options, streaming=True)
        self._schema = schema
        self._check_url = _opened(self._publishing, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Run a task."""
        context = TaskContext.get()
        assert context is not None, "Spark runs tasks"
        query, number = context.getLocalProperty(_QUERY) or "", context.getLocalProperty(_BATCH)
        assert query, "a streaming task knows its query"
        assert number is not None, "a streaming task knows its batch"
        publisher = self._publishing.publisher
        batch = Batch(stream_batch(publisher, query, int(number)), publisher, query, int(number))
        return write(self._publishing, self._schema, self._check_url, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 -- Spark's
        """Publish the batch: all its tasks have written."""
        _published(self._publishing, messages, is_streamed=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 -- Spark's
        """Note the final failure of a task.

        The batch comes back when the query is started again.
        """
        _log.warning("batch %s of publisher %s failed, and will come back", batchId, self._publishing.publisher)


def _published(publishing: Publishing, messages: list[WriterCommitMessage | None], *, is_streamed: bool) -> None:
    """Publish a batch, and send its lineage; a batch without rows has none."""
    written = [message for message in messages if isinstance(message, Written)]
    if not written:
        publish(publishing, messages)
        return
    batch = PublishedBatch(written[0].group, sum(one.messages for one in written), is_streamed)
    with batch_sent(publishing, batch):
        publish(publishing, messages)


def _opened(publishing: Publishing, schema: StructType) -> str:
    """Check columns and ledger; return the whole check address."""
    require_columns(publishing, schema)
    engine = engine_of(publishing.ledger)
    install_ledger(engine)
    ledger = Ledger(engine)
    before, now = ledger.key_columns(publishing.publisher), ",".join(publishing.key_columns)
    if before is not None and before != now:
        raise ConfigurationError(
            f"Option keyColumns is {now!r}; publisher {publishing.publisher!r} has published by {before!r}, and by "
            "another key the same rows would be published again.",
            remedy="Give the same key columns in the same order, or another publisher.",
        )
    identity = ledger.identity()
    engine.dispose()  # this process may be copied for tasks, and a connection must not be
    joint = "&" if "?" in publishing.check_url else "?"
    return f"{publishing.check_url}{joint}barrier={quote(identity)}"
