"""`twophase spark archive --verify`: compare the lake's files with its logs.

It also checks the chain of the audit log. It needs no store: a file that was equal to the store must be unchanged now.
Every byte is read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from twophase_spark.lake.chain import first_break
from twophase_spark.lake.copying import fingerprint
from twophase_spark.lake.run import Workers
from twophase_spark.lake.schemas import TABLES
from twophase_spark.lake.tables import File, Lake
from twophase_spark.source.schema.tables import Kind


class Fault(msgspec.Struct, frozen=True):
    """A file, and its fault."""

    path: str
    why: str


class Verified(msgspec.Struct, frozen=True):
    """The result of a verification; without a fault `faults` is empty."""

    files: int
    history: int
    attempts: int
    audit_rows: int
    entries: int
    faults: tuple[Fault, ...]


class Look(msgspec.Struct, frozen=True):
    """A file to be read, of the lake at a place."""

    lake: str
    file: File


def verify(place: str | Path, workers: Workers, say: Callable[[str], None]) -> Verified:
    """Read the whole lake and compare it with its logs.

    Raises:
        ArchiveRefused: there is no lake.
        LakeDamaged: a log cannot be read.
    """
    lake = Lake(place)
    snapshot = lake.snapshot()
    files = {kind: snapshot.files(kind) for kind in TABLES}
    rows = {kind: sum(file.rows for file in files[kind]) for kind in TABLES}
    looks = [Look(lake.place, file) for kind in TABLES for file in files[kind]]
    say(f"reading {len(looks)} files of {sum(rows.values())} rows")
    with workers(sum(rows.values())) as spread:
        faults = [fault for fault in spread(look_at, looks) if fault is not None]
    if not faults:
        broken = first_break(lake, files[Kind.AUDIT_LOG])
        faults += [] if broken is None else [Fault(Kind.AUDIT_LOG.value, f"row {broken.seq}: {broken.why}")]
    return Verified(
        len(looks), rows[Kind.HISTORY], rows[Kind.ATTEMPT], rows[Kind.AUDIT_LOG], rows[Kind.QUEUE_ENTRY], tuple(faults)
    )


def look_at(look: Look) -> Fault | None:
    """Read every byte of a file; return its fault, if it has one."""
    file = look.file
    if not file.sha256:
        return Fault(file.shown, "no archive wrote it: another program has changed the table")
    try:
        size_bytes, sha256 = fingerprint(Lake(look.lake), file)
    except FileNotFoundError:
        return Fault(file.shown, "it is gone")
    except OSError as error:
        return Fault(file.shown, f"it cannot be read: {error}")
    if size_bytes != file.size_bytes:
        return Fault(file.shown, f"it has {size_bytes} bytes, and was written with {file.size_bytes}")
    if sha256 != file.sha256:
        return Fault(file.shown, "its bytes are not those that were written")
    return None
