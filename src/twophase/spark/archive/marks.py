"""What an archive writes into a store: which lake it goes to, and up to when the coordinator may forget.

These are the only writes. Two small rows in `store_meta`, each in a transaction of its own; the coordinator reads the
second before every step of its cleaning. It alone removes history, because it must say in the same commit which gids
it can no longer tell.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twophase.core.errors import ArchiveRefused, ConfigurationError
from twophase.spark.datasource.looking import location_of
from twophase.spark.datasource.tables import Kind
from twophase.spark.datasource.wanted import parse
from twophase.spark.locations import Location
from twophase.spark.readers.database import BUSY_SECONDS_MAX, CONNECT_SECONDS_MAX, reported

Execute = Callable[[str, Sequence[object]], list[Sequence[Any]]]


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
    with _open(location) as execute:
        execute(_sql("claim"), (lake,))
        execute(_sql("hold"), ())
        known = {str(name): int(value) for name, value in execute(_sql("claimed"), ())}
    if known["archive_lake"] != lake:
        raise ArchiveRefused(
            f"{location.shown} is archived into another lake.",
            remedy="Name that lake. When it is given up for good: twophase spark archive --store URL --detach.",
        )
    if fresh and known["archived_until_ms"]:
        raise ArchiveRefused(
            f"{location.shown} was archived into this lake before, and the lake has no manifest any more.",
            remedy="Restore its folder _manifests from a backup, or give the lake up with --detach and take another.",
        )
    return known["archived_until_ms"]


def release(location: Location, lake: int, until_ms: int) -> None:
    """Let the coordinator forget, by its own retention, what was finished before; it never falls."""
    with _open(location) as execute:
        execute(_sql("release"), (until_ms, lake, until_ms))


def detach(location: Location) -> None:
    """Let the coordinator forget without an archive again."""
    with _open(location) as execute:
        execute(_sql("detach"), ())


def _sql(name: str) -> str:
    return (files("twophase.spark.archive") / "sql" / f"{name}.sql").read_text("utf-8")


@contextlib.contextmanager
def _open(location: Location) -> Iterator[Execute]:
    """A transaction that writes, committed at the end of the block."""
    if location.engine not in _OPEN:
        raise ConfigurationError(f"A coordinator's store is SQLite or PostgreSQL, not {location.engine}.")
    with reported(location), _OPEN[location.engine](location) as execute:
        yield execute


@contextlib.contextmanager
def _sqlite(location: Location) -> Iterator[Execute]:
    path = quote(str(Path(location.path)))
    with contextlib.closing(
        sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_SECONDS_MAX)
    ) as connection:
        connection.execute("pragma synchronous = full")
        connection.execute("begin immediate")

        def execute(statement: str, parameters: Sequence[object]) -> list[Sequence[Any]]:
            return connection.execute(statement, parameters).fetchall()

        yield execute
        connection.execute("commit")


@contextlib.contextmanager
def _postgresql(location: Location) -> Iterator[Execute]:
    import psycopg  # noqa: PLC0415 -- only who archives PostgreSQL needs its driver

    with psycopg.connect(location.url, connect_timeout=CONNECT_SECONDS_MAX) as connection:

        def execute(statement: str, parameters: Sequence[object]) -> list[Sequence[Any]]:
            command = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
            cursor = connection.execute(command.replace("?", "%s").encode(), parameters)
            return list(cursor) if cursor.description else []

        yield execute


_OPEN = {"sqlite": _sqlite, "postgresql": _postgresql}
