"""Errors that stop the data pipeline: codes TP-8000 to TP-8104."""

from __future__ import annotations

from twophase.core.errors.base import Fate, TwophaseError


class AuditError(TwophaseError):
    """The audit could not run, so it says nothing about any message."""

    code = "TP-8000"
    concerns_a_message = False
    remedy = "See the cause; the audit only reads, so it may be repeated."


class SparkUnavailable(AuditError):
    """Spark does not start, or its Java has ended in the middle of the work."""

    code = "TP-8001"
    remedy = "Run `twophase spark doctor`; it names what is missing."


class CannotRead(AuditError):
    """A database of the audit, or of a Spark source, cannot be read."""

    code = "TP-8002"
    remedy = "Correct the URL, table or privileges and run it again; nothing was changed."


class HistoryGap(AuditError):
    """Rows that a stream follows were removed by retention or an archive before it read them."""

    code = "TP-8003"
    remedy = (
        "Read the missing rows from the archive if there is one, then continue the stream with option onGap=report, "
        "which reports missing rows as gap rows; run it more often than retention removes rows."
    )


class ArchiveRefused(AuditError):
    """This store cannot be archived into this lake now; nothing was added to it and nothing released for removal."""

    code = "TP-8010"
    remedy = "Let one archive at a time write, and archive a store into one lake only; then run it again."


class LakeDamaged(AuditError):
    """Files of a lake do not match its logs, or what was written differs from the store."""

    code = "TP-8011"
    remedy = "Run `twophase spark archive --lake DIR --verify`, and restore the files it names from a backup."


class PublishError(TwophaseError):
    """Rows could not be published. A batch is published as a whole or not at all; what was prepared waits for it."""

    code = "TP-8100"
    fate = Fate.UNDECIDED
    remedy = "Correct the cause and run it again: what is already published is not published twice."


class RowRefused(PublishError):
    """A row cannot be a message; nothing of its batch is published."""

    code = "TP-8101"
    remedy = "Correct the rows and run it again; what is already published is not published twice."


class RowChanged(PublishError):
    """A row has the same key as a message that is already prepared, with different content."""

    code = "TP-8102"
    remedy = (
        "Make the query return the same row for a key whenever it runs (no random values, no current time, the same "
        "spark.sql.session.timeZone), or give the changed row a key of its own; and use the ledger with which its "
        "batch began."
    )


class RowGivenUp(PublishError):
    """A row has the same key as a message that was given up, and is rolled back for ever."""

    code = "TP-8103"
    remedy = "Set option onAbandoned=skip to leave such rows out, or give them keys of their own."


class LedgerUnavailable(PublishError):
    """The publisher's ledger cannot be used."""

    code = "TP-8104"
    remedy = (
        "Make sure that the database named by option ledger runs, is writable, and can be reached from every executor."
    )
