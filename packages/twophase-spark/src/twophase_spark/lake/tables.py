"""The lake: four Delta tables.

They are `history`, `attempt`, `audit_log` and `queue_entry`. Each has a partition a day.

    history/_delta_log/00000000000000000003.json                                    what commit 3 has added
    history/dt=2026-11-20/n1-000000000001-000000250000-9f2c61d0-<sha256>.parquet    rows, by the day they were finished

A commit makes its files part of the table in one instant. Each raises a mark in the same step (`txn` of the Delta
protocol): the last seq of a node, the last row of the audit log, or the time up to which attempts or entries are there.
A commit is refused when its marks are not those that its run has seen, so of two archives at once only one adds a
stretch.
A file that no commit names is not part of a table: it was left by a run that was killed, and is removed a week later.

The name of a file ends in the SHA-256 of its bytes, so the log says what a file must hold. Folder or object store:
`deltalake` reads and writes both.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import fs

from twophase.core.errors import ArchiveRefused, LakeDamaged
from twophase_spark.lake.facts import SHAPES
from twophase_spark.lake.schemas import TABLES, target_of
from twophase_spark.source.schema.tables import Kind

DAY = "dt"
UNTIL, AUDIT_THROUGH, NODES = "twophase-until-ms", "twophase-audit-log", "twophase-nodes"
ENTRIES_UNTIL = "twophase-entries-until-ms"
_LEFT_HOURS = 168
_COPY_BYTES = 2**20
_IDENTITY_MAX = 2**62 - 1
_COLOUR = re.compile(r"\x1b\[\d*m")
_PATH = re.compile(rf"{DAY}=\d{{4}}-\d\d-\d\d/(?P<task>[\w-]+)-[0-9a-f]{{8}}-(?P<sha256>[0-9a-f]{{64}})\.parquet")


class File(msgspec.Struct, frozen=True):
    """A file of a table, by its commit.

    `path` from the table's folder; `node` is history's, 0 for others; `first`, `last`: the bounds of its numbers,
    `first_ms`, `last_ms` of its times.
    """

    kind: Kind
    path: str
    node: int
    rows: int
    first: int
    last: int
    first_ms: int
    last_ms: int
    size_bytes: int

    @property
    def shown(self) -> str:
        """The path from the lake's place."""
        return f"{self.kind}/{self.path}"

    @property
    def task(self) -> str:
        """The name of the task that wrote it; empty when no archive did."""
        found = _PATH.fullmatch(self.path)
        return "" if found is None else found["task"]

    @property
    def sha256(self) -> str:
        """The SHA-256 of its bytes; empty when no archive wrote it."""
        found = _PATH.fullmatch(self.path)
        return "" if found is None else found["sha256"]


class Extent(msgspec.Struct, frozen=True):
    """The rows that are in the lake.

    `through`: node to the last seq; `audit_through`: the last row of the audit log; `until_ms`: all that was finished
    or made before is there, and the store may remove it; `entries_until_ms`: entries that were stored before are there.
    """

    through: dict[int, int] = {}
    audit_through: int = 0
    until_ms: int = 0
    entries_until_ms: int = 0


class Lake:
    """A lake at a place: a folder, or a URL of an object store. It need not exist yet."""

    def __init__(self, place: str | Path) -> None:
        """Look at nothing yet."""
        text = str(place).removeprefix("file://")
        self.folder = None if "://" in text else Path(text).absolute()
        self.place = text.rstrip("/") if self.folder is None else str(self.folder)

    def uri(self, kind: Kind) -> str:
        """Return the place of a table."""
        return f"{self.place}/{kind}"

    def files_of(self, kind: Kind) -> fs.FileSystem:
        """Return the files of a table, by their paths in it."""
        return fs.PyFileSystem(DeltaStorageHandler(self.uri(kind)))

    def create(self) -> None:
        """Make the tables that are not there yet.

        Raises:
            ArchiveRefused: files are there, and no table: another program's, or its log was lost.
        """
        for kind in TABLES:
            if self.folder is not None:
                _make_folder(self.folder / kind)
            if DeltaTable.is_deltatable(self.uri(kind)):
                continue
            found = self.files_of(kind).get_file_info(fs.FileSelector("", recursive=True))
            if any(info.path.endswith(".parquet") for info in found):
                raise ArchiveRefused(
                    f"{self.uri(kind)} has Parquet files, and no Delta log.",
                    remedy="Restore its folder _delta_log from a backup, or stop using the lake with --detach and "
                    "choose another.",
                )
            schema = target_of(kind).append(pa.field(DAY, pa.date32()))
            settings = {"delta.appendOnly": "true"}
            DeltaTable.create(
                self.uri(kind), schema, mode="ignore", partition_by=[DAY], name=kind, configuration=settings
            )

    def snapshot(self) -> Snapshot:
        """Return the lake as it is now.

        Raises:
            ArchiveRefused: there is no lake. A misspelt place would look like an empty, faultless one.
            LakeDamaged: a log cannot be read.
        """
        try:
            tables = {kind: DeltaTable(self.uri(kind)) for kind in TABLES}
        except TableNotFoundError:
            if self.folder is not None and _is_closed(self.folder):
                raise ArchiveRefused(
                    f"{self.place} is closed to this user.", remedy="Run the command as the user who archives."
                ) from None
            raise ArchiveRefused(
                f"{self.place} is not a lake: it does not have the Delta tables {', '.join(TABLES)}.",
                remedy="Name the lake that `twophase spark archive` writes.",
            ) from None
        except OSError as error:
            raise ArchiveRefused(f"{self.place} cannot be read: {_plain(error)}.") from error
        except DeltaError as error:
            raise LakeDamaged(f"{self.place}: the log of a table cannot be read: {_plain(error)}.") from error
        return Snapshot(self, tables)

    def put(self, kind: Kind, path: str, source: IO[bytes]) -> None:
        """Write a file whole, and durably."""
        # Arrow hands on a piece as large as its buffer as it is, in a type of its own, which deltalake refuses.
        with self.files_of(kind).open_output_stream(path, buffer_size=2 * _COPY_BYTES) as target:
            while piece := source.read(_COPY_BYTES):
                target.write(piece)
        if self.folder is not None:
            _sync(self.folder, [self.folder / kind / path])

    def settle(self) -> None:
        """Make what was committed durable: only then may a store remove its rows."""
        if self.folder is not None:
            logs = [self.folder / kind / "_delta_log" for kind in TABLES]
            _sync(self.folder, [path for log in logs for end in ("json", "parquet") for path in log.glob(f"*.{end}")])

    def clean(self) -> None:
        """Remove files that killed runs left, a week after they were written."""
        for kind in TABLES:
            table = DeltaTable(self.uri(kind))
            # A dry run first: the other kind makes two commits, also where there is nothing to remove.
            if table.vacuum(retention_hours=_LEFT_HOURS, full=True):
                table.vacuum(retention_hours=_LEFT_HOURS, full=True, dry_run=False)


class Snapshot:
    """The lake at one moment: a version of each table, and the commits of its own."""

    def __init__(self, lake: Lake, tables: Mapping[Kind, DeltaTable]) -> None:
        """Take versions that were read."""
        self.lake = lake
        self._tables = dict(tables)
        self._raised: dict[str, int] = {}

    @property
    def identity(self) -> int:
        """The number by which its store knows the lake."""
        table_id: int = uuid.UUID(str(self._tables[Kind.HISTORY].metadata().id)).int
        return (table_id & _IDENTITY_MAX) + 1

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the tables: equal when the lake is unchanged."""
        return tuple(int(self._tables[kind].version()) for kind in TABLES)

    def extent(self) -> Extent:
        """Return what the lake has."""
        nodes = range(self._mark(Kind.HISTORY, NODES) + 1)
        through = {node: self._mark(Kind.HISTORY, node_mark(node)) for node in nodes}
        through = {node: last for node, last in through.items() if last}
        return Extent(
            through,
            self._mark(Kind.AUDIT_LOG, AUDIT_THROUGH),
            self._mark(Kind.ATTEMPT, UNTIL),
            self._mark(Kind.QUEUE_ENTRY, ENTRIES_UNTIL),
        )

    def files(self, kind: Kind) -> list[File]:
        """Return the files of a table, in the order of their paths."""
        shape = SHAPES[kind]
        actions = pa.table(self._tables[kind].get_add_actions(flatten=True)).to_pylist()
        return [
            File(
                kind=kind,
                path=row["path"],
                node=(row.get("min.node") or 0) if kind is Kind.HISTORY else 0,
                rows=row.get("num_records") or 0,
                first=row.get(f"min.{shape.key}") or 0,
                last=row.get(f"max.{shape.key}") or 0,
                first_ms=row.get(f"min.{shape.time}") or 0,
                last_ms=row.get(f"max.{shape.time}") or 0,
                size_bytes=row["size_bytes"],
            )
            for row in sorted(actions, key=lambda row: row["path"])
        ]

    def commit(
        self, kind: Kind, files: Sequence[File], marks: Mapping[str, int], now_ms: int, notes: Mapping[str, str]
    ) -> None:
        """Add files that were verified, and raise marks, in one step.

        Raises:
            ArchiveRefused: another archive has raised one meanwhile.
        """
        table = DeltaTable(self.lake.uri(kind))
        properties = CommitProperties(dict(notes), app_transactions=[Transaction(*mark) for mark in marks.items()])
        seen = {mark: self._mark(kind, mark) for mark in marks}
        if seen != {mark: table.transaction_version(mark) or 0 for mark in marks}:
            raise _another(self.lake)
        try:
            table.create_write_transaction(
                [_added(file, now_ms) for file in files],
                "append",
                table.schema(),
                [DAY],
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise _another(self.lake) from error
        self._raised |= marks
        table.update_incremental()
        self._tables[kind] = table

    def _mark(self, kind: Kind, mark: str) -> int:
        return int(self._raised.get(mark) or self._tables[kind].transaction_version(mark) or 0)


def node_mark(node: int) -> str:
    """Return the mark of a node's history."""
    return f"twophase-node-{node}"


@contextlib.contextmanager
def writing(lake: Lake) -> Iterator[None]:
    """Turn errors of the lake's place into ArchiveRefused."""
    try:
        yield
    except (OSError, DeltaError) as error:
        raise ArchiveRefused(
            f"{lake.place} cannot be written: {_plain(error)}.",
            remedy="Make sure that the lake can be written and has space, then run it again: it continues where it "
            "was.",
        ) from error


def _plain(error: OSError | DeltaError) -> str:
    """Return an error's text as one line; that of `deltalake` has several, in colours."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(_COLOUR.sub("", text).split())


def _another(lake: Lake) -> ArchiveRefused:
    return ArchiveRefused(
        f"{lake.place}: another archive is at work there.", remedy="Run it again when the other archive has ended."
    )


def _added(file: File, now_ms: int) -> AddAction:
    shape = SHAPES[file.kind]
    node = {"node": file.node} if file.kind is Kind.HISTORY else {}
    stats = {
        "numRecords": file.rows,
        "minValues": {shape.key: file.first, shape.time: file.first_ms, **node},
        "maxValues": {shape.key: file.last, shape.time: file.last_ms, **node},
        "nullCount": {},
    }
    day = file.path.partition("/")[0].removeprefix(f"{DAY}=")
    return AddAction(file.path, file.size_bytes, {DAY: day}, now_ms, True, msgspec.json.encode(stats).decode())


def _make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, for its owner only.

    What is in it is as secret as the store.
    """
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _is_closed(folder: Path) -> bool:
    """Return True for a folder that this user may not look into."""
    return os.access(folder, os.F_OK) and not os.access(folder, os.R_OK | os.X_OK)


def _sync(top: Path, paths: Sequence[Path]) -> None:
    """Sync files and the folders above them, so that they survive a loss of power."""
    above = {parent for path in paths for parent in path.parents if parent.is_relative_to(top)}
    for path in [*paths, *sorted(above)]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
