"""The events of a batch that the sink publishes.

A batch is a run of the job `twophase.publish.PUBLISHER`: START and COMPLETE when the driver decides and submits it, or
FAIL. Spark brings a batch of a stream back, and its run then has the same id. What it writes is the coordinator's
messages, and the decision in the ledger's barrier: the dataset that an audit reads as a producer's. Spark's own lineage
has what the batch read. The client is imported by the process of each commit, only where OpenLineage is configured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from twophase_spark.lineage.sending import Backend, has_client, is_configured

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from twophase_spark.sink.options import Publishing

WAIT_S_MAX: Final = 1.0
"""Bound on what a backend that hangs delays a batch by, in seconds."""
_RUNS: Final = uuid.UUID("6f1d2c0e-5f0b-5c1e-9d57-2a1f4b7c8e90")
_log = logging.getLogger("twophase.spark")


class PublishedBatch(msgspec.Struct, frozen=True):
    """A batch for its events.

    `group`: its id in the ledger; `messages`: how many it has; `is_streamed`: a stream brings it.
    """

    group: str
    messages: int
    is_streamed: bool

    @property
    def run_id(self) -> str:
        """Return the id of its run, the same at every repetition.

        >>> one = PublishedBatch("batch-a", 1, is_streamed=True)
        >>> one.run_id == PublishedBatch("batch-a", 0, is_streamed=True).run_id
        True
        """
        return uuid.uuid5(_RUNS, self.group).hex


@contextlib.contextmanager
def batch_sent(publishing: Publishing, batch: PublishedBatch) -> Iterator[None]:
    """Send START, and at the end of the block COMPLETE or FAIL.

    Nothing is sent, and nothing imported, where OpenLineage is not configured.
    """
    if not is_configured():
        yield
        return
    if not has_client():
        _log.warning("OpenLineage is configured, and its client is not installed: twophase-spark[openlineage].")
        yield
        return
    backend = Backend(_log.warning, "batch", WAIT_S_MAX)

    def send(kind: str, error: Exception | None = None) -> None:
        at = datetime.now(UTC)
        backend.put(lambda: event_of_batch(kind, publishing, batch, at, error))

    send("START")
    try:
        yield
    except Exception as error:
        send("FAIL", error)
        raise
    else:
        send("COMPLETE")
    finally:
        backend.close()


def event_of_batch(
    kind: str, publishing: Publishing, batch: PublishedBatch, at: datetime, error: Exception | None = None
) -> RunEvent:
    """Return one event of a batch.

    Arguments:
        kind: START, COMPLETE or FAIL.
        publishing: the sink's options.
        batch: the batch.
        at: when it happened.
        error: what failed; of a foreign error, the event has only the kind.
    """
    from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState  # noqa: PLC0415 -- an extra

    from twophase_spark.lineage import facets  # noqa: PLC0415 -- needs the extra
    from twophase_spark.lineage.naming import Name, names_of  # noqa: PLC0415 -- the same
    from twophase_spark.source.options.address import locate  # noqa: PLC0415 -- a batch without events is quick

    address = urlsplit(publishing.coordinator)
    messages = Name(f"{address.scheme}://{address.netloc.rpartition('@')[2]}", "messages")
    written = {} if kind != "COMPLETE" else {"outputStatistics": facets.rows_written(batch.messages)}
    outputs = [
        OutputDataset(messages.namespace, messages.name, outputFacets=dict(written)),
        *(OutputDataset(name.namespace, name.name) for name in names_of(locate(publishing.ledger, "ledger"))),
    ]
    job = Job(
        facets.namespace_of(os.environ),
        f"twophase.publish.{publishing.publisher}",
        {"jobType": facets.job_type("STREAMING" if batch.is_streamed else "BATCH", "PUBLISH")},
    )
    return RunEvent(
        eventTime=at.isoformat(),
        eventType=RunState(kind),
        run=Run(str(uuid.UUID(batch.run_id)), facets.of_run(facets.parent_named(os.environ), error)),
        job=job,
        inputs=[],
        outputs=outputs,
        producer=facets.PRODUCER,
    )
