"""The driver's work when all tasks have written: decide the batch, then submit.

It submits the messages that the decision names. Everything here may be cut off and repeated. A batch that is decided is
never decided again; a batch whose messages were not all submitted is finished by the next call of this function, or by
the check-back.
"""

from __future__ import annotations

import itertools
import logging
import shlex
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from twophase.core import failpoint
from twophase.core.errors import ContraryDecision, PublishError, UnknownMessage
from twophase.core.many import OneResult
from twophase_spark.sink.bulk import bulk_client
from twophase_spark.sink.database import engine_of
from twophase_spark.sink.ledger import Decision, Ledger
from twophase_spark.sink.options import Publishing
from twophase_spark.sink.task import Written

_log = logging.getLogger("twophase.spark")


def publish(publishing: Publishing, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Publish a batch.

    Raises:
        RowRefused: two partitions hold the same key; nothing is published.
        ContraryDecision: messages had failed before, by an operator's act; all others are published. Raised once.
        PublishError: another run of the query published the batch meanwhile, with other rows; or the ledger has lost
            rows of the batch.
        LedgerUnavailable, CoordinatorUnreachable: to be run again.
    """
    written = [message for message in messages if isinstance(message, Written)]
    ledger = Ledger(engine_of(publishing.ledger))
    refused: PublishError | None = None
    decided = ""
    if written:
        group = written[0].group
        assert all(one.group == group for one in written), "tasks of one batch"
        runs = [one for one in written if one.writer]
        _reach("spark.before_decision")
        decision = ledger.decision(group)
        if decision is Decision.OPEN:
            if len(runs) < len(written):
                ledger.require_published(group)  # a task met a decision, and recorded nothing
            decision = ledger.decide(group, [run.writer for run in runs], sum(run.messages for run in runs))
        _reach("spark.after_decision")
        if decision is Decision.GIVEN_UP:
            _log.warning("batch %s was given up: its rows are left out", group)
        if decision is Decision.PUBLISHED:
            decided = group
            refused = _not_counted(ledger, group, [run.writer for run in runs])
    for group in ledger.unpublished(publishing.publisher):
        _submit(publishing, ledger, group)
    if decided:
        ledger.require_published(decided)
    if refused is not None:  # now, as the other run may have ended before it submitted what it decided
        raise refused


def _not_counted(ledger: Ledger, group: str, writers: Sequence[int]) -> PublishError | None:
    """Return the refusal of rows that another run of the query has left out."""
    left = next(ledger.left_out(group, writers), None)
    if left is None:
        return None
    return PublishError(
        f"Batch {group} was published meanwhile by another run of its query, and with other rows: these rows are "
        "not published.",
        gid=left[0],
        remedy="Stop the other run. Then begin with a new checkpoint, and a source from before these rows; "
        "published ones are left out.",
    )


def _submit(publishing: Publishing, ledger: Ledger, group: str) -> None:
    contrary: list[str] = []
    submitted = 0

    def settled(gid: str, result: OneResult) -> None:
        nonlocal submitted
        submitted += 1
        if submitted == 1:
            _reach("spark.amid_submit")
        if result.code == ContraryDecision.code:
            contrary.append(gid)
        elif result.code == UnknownMessage.code:
            raise PublishError(
                f"The coordinator does not know a message of published batch {group}: {result.code}: {result.message}",
                gid=gid,
                remedy="Name the coordinator that it was prepared at. Or, where that one delivered it and cleaned its "
                f"history since: `twophase spark abandon --publisher {shlex.quote(publishing.publisher)} "
                f"--batch {group}` leaves to its check-backs what is not submitted.",
            )
        elif result.code:
            raise PublishError(f"The coordinator refused a submit: {result.code}: {result.message}", gid=gid)

    with bulk_client(publishing) as coordinator:
        gids = itertools.chain.from_iterable(ledger.messages(group))
        coordinator.submit(gids, publishing.rows_per_request, settled)
    _reach("spark.before_published")
    ledger.set_published(group, len(contrary))
    _reach("spark.after_published")
    if contrary:
        raise ContraryDecision(
            f"{len(contrary)} messages of batch {group} had failed before they were submitted; the others are "
            "published. This is reported once: a new run continues.",
            gid=contrary[0],
        )


def _reach(name: str) -> None:
    if failpoint.ARMED:
        failpoint.reach(name)
