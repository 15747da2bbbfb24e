"""The lake: a folder of Parquet files, and the manifests that list its files.

    history/dt=2026-11-20/n1-000000000001-000000250000.parquet      rows, by the day they were finished
    attempt/dt=2026-11-20/r00000003-0001.parquet                    attempts, by the day they were made
    audit_log/dt=2026-11-20/a000000000001-000000000250.parquet      the audit log, by the day its rows were written
    _manifests/00000003.json                                        what round 3 has added
    _staging/00000004-9f2c61d05a77e340/…                            what a round under way has written
    _lake.json, _lock                                               the lake's number; the process at work

A round becomes valid in one instant: when its manifest appears under its number. Before that its files lie in
`_staging` and do not count; after it they are moved to their final paths, by the next process if need be. So a file
under `history` always belongs to a manifest, and a reader of the plain folders sees nothing twice. Each try of a round
has a folder of its own in `_staging`, which its manifest names: a task that outlives a killed run writes into a folder
that no manifest names. In it each attempt of a task has one too, `attempt-…`: the files of the attempt whose result the
driver accepted are moved out of it, before they are compared; those of other attempts of the same task are never looked
at.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from twophase.core.errors import ArchiveRefused, LakeDamaged
from twophase_spark.archive.facts import Facts

FORMAT = 1
_IDENTITY, _LOCK, _MANIFESTS, _STAGING = "_lake.json", "_lock", "_manifests", "_staging"
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class File(msgspec.Struct, frozen=True):
    """A file that a manifest lists.

    `path` from the lake's folder; `node` is history's, 0 for others; `facts` as they were verified. `since_ms`,
    `until_ms`: of attempts, the time from which the file has those of its day, the last one without.
    """

    path: str
    table: str
    node: int
    facts: Facts
    size_bytes: int
    sha256: str
    since_ms: int = 0
    until_ms: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """The files that one round added, and the extent of the lake with it.

    `through`: node to the last seq in the lake; `attempts_until_ms`: attempts made before it are in the lake;
    `until_ms`: rows finished or made before it are in the lake, and the store may remove them; `missing`: rows that
    were gone from the store when their numbers were archived. `staging`: the folder in `_staging` in which they were
    written; empty where its name is the round's number. `audit_through`: the last row of the audit log in the lake.
    """

    format: int
    number: int
    lake: int
    made_ms: int
    through: dict[int, int]
    attempts_until_ms: int
    until_ms: int
    missing: int
    files: tuple[File, ...]
    staging: str = ""
    audit_through: int = 0


class _Identity(msgspec.Struct, frozen=True):
    format: int
    lake: int


class Lake:
    """A lake at a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        """Look at nothing yet."""
        self.folder = folder.absolute()

    @property
    def identity(self) -> int | None:
        """The number by which its store knows it; None when there is no lake here.

        Raises:
            LakeDamaged: the file that says it cannot be read.
        """
        found = self._read(self.folder / _IDENTITY, _Identity)
        return None if found is None else found.lake

    def create(self) -> int:
        """Make the folder a lake if it is not one yet; return its number."""
        found = self.identity
        if found is not None:
            return found
        if self._manifest_paths():
            raise LakeDamaged(f"{self.folder} has manifests and no {_IDENTITY}.")
        made = _Identity(FORMAT, secrets.randbits(62) + 1)
        _write_whole(self.folder / _IDENTITY, msgspec.json.encode(made))
        return made.lake

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the exclusive right to write for the block's time.

        The kernel takes it back when this process ends, in any way.

        Raises:
            ArchiveRefused: another process has it.
        """
        make_folder(self.folder)
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip() or "another process"
                raise ArchiveRefused(f"{self.folder}: another archive is at work there ({holder}).") from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def manifests(self) -> list[Manifest]:
        """Return all manifests, in order.

        Raises:
            LakeDamaged: one is missing, cannot be read, or belongs to another lake.
        """
        found: list[Manifest] = []
        identity = self.identity
        for number, path in enumerate(self._manifest_paths(), start=1):
            manifest = self._read(path, Manifest)
            if manifest is None or manifest.number != number or path.stem != f"{number:08}":
                raise LakeDamaged(f"{self.folder}: manifest {number:08}.json is missing; restore it from a backup.")
            if manifest.format != FORMAT:
                raise LakeDamaged(f"{path} is of format {manifest.format}; this twophase knows {FORMAT}.")
            if manifest.lake != identity:
                raise LakeDamaged(f"{path} belongs to another lake.")
            found.append(manifest)
        return found

    def new_staging(self, number: int) -> Path:
        """Return the folder where a try of round `number` writes, and no other try."""
        return self.folder / _STAGING / f"{number:08}-{secrets.token_hex(8)}"

    def _staging_of(self, manifest: Manifest) -> Path:
        name = manifest.staging or f"{manifest.number:08}"
        if not name.startswith(f"{manifest.number:08}") or Path(name).name != name:
            raise LakeDamaged(
                f"{self.folder}: a manifest names {name!r}, which is no folder of round {manifest.number}."
            )
        return self.folder / _STAGING / name

    def clear_staging(self) -> None:
        """Remove the files of rounds that never became valid.

        Call `publish` before; only with the lock.
        """
        shutil.rmtree(self.folder / _STAGING, ignore_errors=True)

    @staticmethod
    def take(staging: Path, attempt: Path, paths: Sequence[str]) -> None:
        """Move the files of the accepted attempt of a task to the round's folder."""
        for path in paths:
            make_folder((staging / path).parent)
            (attempt / path).rename(staging / path)

    def commit(self, manifest: Manifest) -> None:
        """Make a round valid: everything it names stands in `_staging` and was verified.

        Raises:
            ArchiveRefused: there is such a round already.
        """
        self._settle(manifest)
        path = self.folder / _MANIFESTS / f"{manifest.number:08}.json"
        make_folder(path.parent)
        written = path.with_suffix(".new")
        _write_whole(written, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        try:
            os.link(written, path)  # unlike a rename it never replaces another's file
        except FileExistsError:
            raise ArchiveRefused(f"{path} exists: another archive writes to this lake.") from None
        written.unlink()
        sync_folder(path.parent)

    def publish(self, manifest: Manifest) -> None:
        """Move the files of a round to their final paths; it may be called again."""
        staging = self._staging_of(manifest)
        if not staging.is_dir():
            return
        for file in manifest.files:
            path = self.path_of(file)
            make_folder(path.parent)
            with contextlib.suppress(FileNotFoundError):
                (staging / file.path).rename(path)
        self._sync({self.path_of(file).parent for file in manifest.files})

    def path_of(self, file: File) -> Path:
        """Return the path of a published file.

        Raises:
            LakeDamaged: the manifest names a path outside the lake.
        """
        parts = Path(file.path).parts
        if len(parts) != 3 or parts[0] != file.table or ".." in parts:
            raise LakeDamaged(f"{self.folder}: a manifest names {file.path!r}, which is no place in a lake.")
        return self.folder.joinpath(*parts)

    def _settle(self, manifest: Manifest) -> None:
        """Sync the files of a manifest to disk.

        A manifest that survives a loss of power must not name files that do not.
        """
        staging = self._staging_of(manifest)
        self._sync({(staging / file.path).parent for file in manifest.files})

    def _sync(self, folders: set[Path]) -> None:
        above = {parent for folder in folders for parent in folder.parents if parent.is_relative_to(self.folder)}
        for folder in sorted(folders | above | {self.folder}):
            sync_folder(folder)

    def _manifest_paths(self) -> list[Path]:
        return sorted((self.folder / _MANIFESTS).glob("*.json"))

    @staticmethod
    def _read(path: Path, kind: type[_Struct]) -> _Struct | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise LakeDamaged(f"{path} cannot be read: {error}.") from None


def attempt_folder(staging: Path, name: str) -> Path:
    """Return the folder where one attempt of a task writes."""
    return staging / f"attempt-{name}"


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, for its owner only."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its renames survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_whole(path: Path, text: bytes) -> None:
    """Write a file that has all of the text or does not exist."""
    written = path.with_suffix(".part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    written.rename(path)
    sync_folder(path.parent)
