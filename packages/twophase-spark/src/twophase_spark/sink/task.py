"""The work of one task, on executors: check, record and prepare its rows.

The order is what keeps them safe: a message that is prepared stands in the ledger, so its check-back has an answer.
Rows are checked in portions of some megabytes, usually the whole task: a bad one is reported before anything of its
portion is prepared. Then some thousand at a time are recorded, while those before them are being prepared.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from twophase.core import failpoint
from twophase.core.errors import (
    ContentConflict,
    InvalidRequest,
    LimitExceeded,
    PublishError,
    RowChanged,
    RowGivenUp,
    RowRefused,
)
from twophase.core.many import OneResult
from twophase_spark.sink.bulk import bulk_client
from twophase_spark.sink.database import engine_of
from twophase_spark.sink.ledger import Batch, Decision, Ledger
from twophase_spark.sink.options import Publishing
from twophase_spark.sink.rows import Encoded, RowEncoder, gids_of

PORTION_BYTES_MAX: Final = 64 * 1024 * 1024
PORTION_ROWS_MAX: Final = 200_000
ROWS_PER_STATEMENT: Final = 5_000
_NO_WRITER: Final = 0
_GID: Final = operator.itemgetter(0)
_PUBLISHED_STATES: Final = frozenset({"submitted", "succeed"})
_NOT_VALID: Final = frozenset({InvalidRequest.code, LimitExceeded.code, "TP-1002", "TP-1003"})


class Written(WriterCommitMessage):
    """The result of a task for the driver: batch, run, and number of messages.

    It has no messages: those are in the ledger.
    """

    def __init__(self, group: str, writer: int, messages: int) -> None:
        self.group = group
        self.writer = writer
        self.messages = messages


def write(
    publishing: Publishing, schema: StructType, check_url: str, batch: Batch, rows: Iterator[pa.RecordBatch]
) -> Written:
    """Prepare one message a row.

    Raises:
        RowRefused, RowChanged, RowGivenUp: see there. LedgerUnavailable, CoordinatorUnreachable: after some patience.
        PublishError: the batch was published with other rows.
    """
    ledger = Ledger(engine_of(publishing.ledger))
    decision = ledger.begin(batch, ",".join(publishing.key_columns))
    if decision is not Decision.OPEN:
        for taken in rows:  # a repetition of a decided batch: Spark wants its rows taken, and no work is left
            if decision is Decision.PUBLISHED:
                _require_decided(ledger, batch, gids_of(publishing, taken))
        return Written(batch.group, 0, 0)
    task = TaskRun(ledger, ledger.begin_run(batch.group), skips=publishing.skips_abandoned)
    encoder = RowEncoder(publishing, schema, check_url)
    with bulk_client(publishing) as coordinator:
        messages = (message for portion in _portions(encoder, rows) for message in task.written_down(portion))
        coordinator.prepare(messages, publishing.rows_per_request, _settled)
        _reach("spark.after_prepare")
    return Written(batch.group, task.writer, task.messages)


class TaskRun:
    """One run of a task, and the number of messages that it has recorded."""

    def __init__(self, ledger: Ledger, writer: int, *, skips: bool) -> None:
        self.writer = writer
        self.messages = 0
        self._ledger = ledger
        self._skips = skips

    def written_down(self, portion: list[Encoded]) -> Iterator[Encoded]:
        """Record the messages of a portion, some at a time, and yield those to prepare.

        Each is yielded when the ledger has it, in the order of their gids: neighbours in the ledger's and the
        coordinator's indexes come together.
        """
        portion.sort(key=_GID)
        gids = [gid for gid, _ in portion]
        if len(set(gids)) != len(gids):
            raise RowRefused("Two rows of one batch have the same key.")
        for first in range(0, len(gids), ROWS_PER_STATEMENT):
            out = self._noted(gids[first : first + ROWS_PER_STATEMENT])
            left = [one for one in portion[first : first + ROWS_PER_STATEMENT] if one[0] not in out]
            self.messages += len(left)
            _reach("spark.after_written_down")
            yield from left

    def _noted(self, gids: list[str]) -> set[str]:
        """Record messages durably; return those that are decided already, and so left out."""
        ledger, writer = self._ledger, self.writer
        ledger.write_down(writer, gids)
        known = ledger.known_elsewhere(writer, gids)
        ledger.strike_out(writer, known.published + known.given_up)
        if known.given_up and not self._skips:
            raise RowGivenUp(
                f"{len(known.given_up)} rows have the keys of messages that were given up.", gid=known.given_up[0]
            )
        return {*known.published, *known.given_up}


def _require_decided(ledger: Ledger, batch: Batch, gids: list[str]) -> None:
    """Refuse rows of a published batch that no decided batch has."""
    for first in range(0, len(gids), ROWS_PER_STATEMENT):
        lot = gids[first : first + ROWS_PER_STATEMENT]
        known = ledger.known_elsewhere(_NO_WRITER, lot)
        missing = set(lot).difference(known.published, known.given_up)
        if missing:
            raise PublishError(
                f"Batch {batch.number} of this query was published with other rows: the checkpoint is older than the "
                "ledger, or the query does not give the same rows again. Nothing was prepared.",
                gid=min(missing),
                remedy="Begin with a new checkpoint, and a source from before these rows; published ones are left out.",
            )


def _portions(encoder: RowEncoder, rows: Iterator[pa.RecordBatch]) -> Iterator[list[Encoded]]:
    portion: list[Encoded] = []
    size_bytes = 0
    for batch in rows:
        encoded = encoder.encode(batch)
        portion += encoded
        size_bytes += sum(len(request) for _, request in encoded)
        if size_bytes >= PORTION_BYTES_MAX or len(portion) >= PORTION_ROWS_MAX:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion


def _settled(gid: str, result: OneResult) -> None:
    """Check the coordinator's result of one prepare."""
    if not result.code or result.state in _PUBLISHED_STATES:
        return
    if result.code == ContentConflict.code:
        raise RowChanged(f"A row's message is prepared already, and not as this one: {result.message}", gid=gid)
    if result.state == "failed":
        raise RowGivenUp(
            "The coordinator holds a row's message failed, and no batch here gave it up: an operator stopped it.",
            gid=gid,
            remedy="Look at it with `twophase explain`; leave the row out of the DataFrame, or give it another key.",
        )
    if result.code in _NOT_VALID:
        raise RowRefused(f"The coordinator refused a row's message: {result.message}", gid=gid)
    raise PublishError(f"The coordinator refused a row's message: {result.code}: {result.message}", gid=gid)


def _reach(name: str) -> None:
    if failpoint.ARMED:
        failpoint.reach(name)
