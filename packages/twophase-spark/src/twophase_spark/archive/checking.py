"""`twophase spark archive --verify`: compare the lake's files with its manifests.

It also looks for files of no manifest, and checks the chain of the audit log. It needs no store: a file that was equal
to the store must be unchanged now. Every byte is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from twophase.core.errors import ArchiveRefused
from twophase_spark.archive.chain import first_break
from twophase_spark.archive.copying import fingerprint, read_facts
from twophase_spark.archive.lake import File, Lake, Manifest
from twophase_spark.archive.run import Workers
from twophase_spark.archive.schemas import TABLES
from twophase_spark.datasource.schema.tables import Kind


class Fault(msgspec.Struct, frozen=True):
    """A file, and its fault."""

    path: str
    why: str


class Verified(msgspec.Struct, frozen=True):
    """The result of a verification; without a fault `faults` is empty."""

    manifests: int
    files: int
    history: int
    attempts: int
    audit_rows: int
    missing: int
    faults: tuple[Fault, ...]


class Look(msgspec.Struct, frozen=True):
    file: File
    path: str


def verify(folder: Path, workers: Workers, say: Callable[[str], None]) -> Verified:
    """Read the whole lake and compare it with its manifests.

    Raises:
        ArchiveRefused: there is no lake, or an archive is at work on it.
        LakeDamaged: its manifests cannot be read.
    """
    lake = Lake(folder)
    require_lake(lake)
    with lake.locked():
        manifests = lake.manifests()
        if manifests:
            lake.publish(manifests[-1])
        looks = [Look(file, str(lake.path_of(file))) for manifest in manifests for file in manifest.files]
        rows = {kind: sum(look.file.facts.rows for look in looks if look.file.table == kind) for kind in TABLES}
        say(f"reading {len(looks)} files of {sum(rows.values())} rows")
        with workers(sum(rows.values())) as spread:
            faults = [fault for fault in spread(look_at, looks) if fault is not None]
        if not faults:
            broken = first_break(lake, [look.file for look in looks if look.file.table == Kind.AUDIT_LOG])
            faults += [] if broken is None else [Fault(Kind.AUDIT_LOG.value, f"row {broken.seq}: {broken.why}")]
        faults += _overlaps(manifests)
        faults += _strays(lake, {look.file.path for look in looks})
    return Verified(
        len(manifests),
        len(looks),
        rows[Kind.HISTORY],
        rows[Kind.ATTEMPT],
        rows[Kind.AUDIT_LOG],
        sum(manifest.missing for manifest in manifests),
        tuple(faults),
    )


def require_lake(lake: Lake) -> None:
    """Refuse a folder that is no lake.

    A misspelt one would look like an empty, faultless lake.
    """
    if lake.identity is None:
        raise ArchiveRefused(
            f"{lake.folder} is no lake: it has no file _lake.json.",
            remedy="Name the folder that `twophase spark archive` writes.",
        )


def look_at(look: Look) -> Fault | None:
    """Read one file, every byte and every row; return its fault, if it has one."""
    path, file = Path(look.path), look.file
    try:
        size_bytes, sha256 = fingerprint(path)
        if size_bytes != file.size_bytes:
            return Fault(file.path, f"it has {size_bytes} bytes, and was written with {file.size_bytes}")
        if sha256 != file.sha256:
            return Fault(file.path, "its bytes are not those that were written")
        if read_facts(path, Kind(file.table)) != file.facts:
            return Fault(file.path, "its rows are not those of the manifest")
    except FileNotFoundError:
        return Fault(file.path, "it is gone")
    except (OSError, pa.ArrowException) as error:
        return Fault(file.path, f"it cannot be read: {error}")
    return None


def _overlaps(manifests: Sequence[Manifest]) -> list[Fault]:
    """Return the faults of files that are named twice: they would be counted twice."""
    seen: set[str] = set()
    found = []
    for file in (file for manifest in manifests for file in manifest.files):
        if file.path in seen:
            found.append(Fault(file.path, "two manifests name it"))
        seen.add(file.path)
    return found


def _strays(lake: Lake, known: set[str]) -> list[Fault]:
    """Return the faults of files that no manifest names.

    A reader of the plain folders would count their rows.
    """
    there = (
        str(path.relative_to(lake.folder)) for kind in TABLES for path in (lake.folder / kind.value).rglob("*.parquet")
    )
    return [Fault(path, "no manifest names it") for path in sorted(there) if path not in known]
