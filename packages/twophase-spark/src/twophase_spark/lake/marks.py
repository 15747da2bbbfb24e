"""The marks of an archive in a store: its lake, and how far it has come.

That is a time, and a row of the audit log. Rows up to there may be removed from the store. They are small rows in
`store_meta`; the coordinator reads them before every step of its cleaning. By them the coordinator's retention removes
only rows that the lake has, at its own age; `purging` removes rows itself.
"""

from __future__ import annotations

from twophase.core.errors import ArchiveRefused
from twophase_spark.lake.tables import Extent
from twophase_spark.lake.writing import changing, statement
from twophase_spark.locations import Location
from twophase_spark.source.options.looking import location_of
from twophase_spark.source.options.read_options import parse
from twophase_spark.source.schema.tables import Kind


def store_at(reference: str) -> Location:
    """Return the coordinator's store that option `url` names, with its password.

    The result must not be kept.
    """
    return location_of(parse({"url": reference, "table": Kind.HISTORY, "name": "store"}))


def claim(location: Location, lake: int, extent: Extent) -> None:
    """Let the store keep every row that is not in `lake`.

    Raises:
        ArchiveRefused: the store goes to another lake, or this one has lost what it had.
        CannotRead: no such store, or it cannot be written to.
    """
    with changing(location) as transaction:
        transaction.rows(statement("claim"), (lake,))
        transaction.rows(statement("hold"))
        known = {str(name): int(value) for name, value in transaction.rows(statement("claimed"))}
    if known["archive_lake"] != lake:
        raise other_lake(location)
    if known["archived_until_ms"] > extent.until_ms:
        raise ArchiveRefused(
            f"{location.shown} was archived into this lake before, and the lake has lost the last commits.",
            remedy="Restore its folders _delta_log from a backup, or stop using the lake with --detach and choose "
            "another.",
        )


def other_lake(location: Location) -> ArchiveRefused:
    """Return the error for a store that goes into another lake."""
    return ArchiveRefused(
        f"{location.shown} is archived into another lake.",
        remedy="Name that lake. When it is given up for good: twophase spark archive --store URL --detach.",
    )


def release(location: Location, lake: int, extent: Extent) -> None:
    """Let the coordinator's retention remove what was finished before the lake's time.

    Of the audit log it may remove the rows that the lake has. What is stored never falls.
    """
    with changing(location) as transaction:
        transaction.rows(statement("release"), (extent.until_ms, lake, extent.until_ms))
        transaction.rows(statement("release_audit"), (extent.audit_through, lake))


def detach(location: Location) -> None:
    """Let the coordinator remove history without an archive again."""
    with changing(location) as transaction:
        transaction.rows(statement("detach"))
