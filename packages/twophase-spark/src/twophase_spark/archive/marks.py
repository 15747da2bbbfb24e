"""What an archive writes into a store: which lake it goes to, and up to when the coordinator may forget.

Two small rows in `store_meta`, each in a transaction of its own; the coordinator reads the second before every step of
its cleaning. With them it forgets what the lake has, at its own age; `purging` removes rows itself.
"""

from __future__ import annotations

from twophase.core.errors import ArchiveRefused
from twophase_spark.archive.writing import changing, statement
from twophase_spark.datasource.asked.looking import location_of
from twophase_spark.datasource.asked.wanted import parse
from twophase_spark.datasource.shape.tables import Kind
from twophase_spark.locations import Location


def store_at(reference: str) -> Location:
    """The coordinator's store that option `url` names, with its password; not to be kept."""
    return location_of(parse({"url": reference, "table": Kind.HISTORY, "name": "store"}))


def claim(location: Location, lake: int, *, fresh: bool) -> int:
    """Let nothing be forgotten any more that is not in `lake`; up to when the store may forget.

    Arguments:
        fresh: the lake has nothing yet.

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
    if fresh and known["archived_until_ms"]:
        raise ArchiveRefused(
            f"{location.shown} was archived into this lake before, and the lake has no manifest any more.",
            remedy="Restore its folder _manifests from a backup, or give the lake up with --detach and take another.",
        )
    return known["archived_until_ms"]


def other_lake(location: Location) -> ArchiveRefused:
    """What to raise when the store does not go into this lake."""
    return ArchiveRefused(
        f"{location.shown} is archived into another lake.",
        remedy="Name that lake. When it is given up for good: twophase spark archive --store URL --detach.",
    )


def release(location: Location, lake: int, until_ms: int) -> None:
    """Let the coordinator forget, by its own retention, what was finished before; it never falls."""
    with changing(location) as transaction:
        transaction.rows(statement("release"), (until_ms, lake, until_ms))


def detach(location: Location) -> None:
    """Let the coordinator forget without an archive again."""
    with changing(location) as transaction:
        transaction.rows(statement("detach"))
