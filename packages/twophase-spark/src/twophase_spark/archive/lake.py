"""The lake: a folder of Parquet files, and the manifests that say which of them count.

    history/dt=2026-11-20/n1-000000000001-000000250000.parquet      rows, by the day they were finished
    attempt/dt=2026-11-20/r00000003-0001.parquet                    attempts, by the day they were made
    _manifests/00000003.json                                        what round 3 has added
    _staging/00000004-9f2c61d05a77e340/…                            what a round under way has written
    _lake.json, _lock                                               whose lake it is; who is at work

A round comes to be in one instant: when its manifest appears under its number. Before that its files lie in
`_staging` and count for nothing; after it they are moved to their places, by whoever comes next if need be. So a file
under `history` is always one of a manifest, and a reader of the plain folders sees nothing twice. Each try of a round
has a folder of its own in `_staging`, which its manifest names: a task that outlives a killed run writes into nobody's.
In it each attempt of a task has one too, `attempt-…`: what the driver took the word of is moved out of it, before it is
compared; what other attempts of the same task wrote, or still write, is never looked at.
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
    """A file that counts. `path` from the lake's folder; `node` 0 for attempts; `facts` as they were verified.

    `since_ms`, `until_ms`: of attempts, the time from which the file has those of its day, the last one without.
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
    """What one round added, and how far the lake goes with it.

    `through`: node to the last seq in the lake; `attempts_until_ms`: attempts made before it are in the lake;
    `until_ms`: what was finished or made before it is in the lake, and may be forgotten by the store;
    `missing`: rows that were gone from the store when their numbers were archived. `staging`: the folder in `_staging`
    in which they were written; empty where it has the round's number for a name.
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


class _Identity(msgspec.Struct, frozen=True):
    format: int
    lake: int


class Lake:
    """A lake at a folder, which need not be there yet."""

    def __init__(self, folder: Path) -> None:
        """Look at nothing yet."""
        self.folder = folder.absolute()

    @property
    def identity(self) -> int | None:
        """The number that its store knows it by; None when there is no lake here.

        Raises:
            LakeDamaged: the file that says it cannot be read.
        """
        found = self._read(self.folder / _IDENTITY, _Identity)
        return None if found is None else found.lake

    def create(self) -> int:
        """Make the folder a lake where it is none; its number."""
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
        """The exclusive right to write, which the kernel takes back when this process ends, however it does.

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
        """All of them, in order.

        Raises:
            LakeDamaged: one is missing, cannot be read, or belongs to another lake.
        """
        found: list[Manifest] = []
        identity = self.identity
        for place, path in enumerate(self._manifest_paths(), start=1):
            manifest = self._read(path, Manifest)
            if manifest is None or manifest.number != place or path.stem != f"{place:08}":
                raise LakeDamaged(f"{self.folder}: manifest {place:08}.json is missing; restore it from a backup.")
            if manifest.format != FORMAT:
                raise LakeDamaged(f"{path} is of format {manifest.format}; this twophase knows {FORMAT}.")
            if manifest.lake != identity:
                raise LakeDamaged(f"{path} belongs to another lake.")
            found.append(manifest)
        return found

    def new_staging(self, number: int) -> Path:
        """Where a try of round `number` writes, and no other try."""
        return self.folder / _STAGING / f"{number:08}-{secrets.token_hex(8)}"

    def _staging_of(self, manifest: Manifest) -> Path:
        name = manifest.staging or f"{manifest.number:08}"
        if not name.startswith(f"{manifest.number:08}") or Path(name).name != name:
            raise LakeDamaged(
                f"{self.folder}: a manifest names {name!r}, which is no folder of round {manifest.number}."
            )
        return self.folder / _STAGING / name

    def clear_staging(self) -> None:
        """Remove what rounds that never came to be have written. Call `publish` before; only with the lock."""
        shutil.rmtree(self.folder / _STAGING, ignore_errors=True)

    @staticmethod
    def take(staging: Path, attempt: Path, paths: Sequence[str]) -> None:
        """Move the files of the attempt that counts, of those of one task, to where the round has its files."""
        for path in paths:
            make_folder((staging / path).parent)
            (attempt / path).rename(staging / path)

    def commit(self, manifest: Manifest) -> None:
        """Let a round be: everything it names stands in `_staging` and was verified.

        Raises:
            ArchiveRefused: there is such a round already.
        """
        self._settle(manifest)
        path = self.folder / _MANIFESTS / f"{manifest.number:08}.json"
        make_folder(path.parent)
        written = path.with_suffix(".new")
        _write_whole(written, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        try:
            os.link(written, path)  # unlike a rename it never replaces another's
        except FileExistsError:
            raise ArchiveRefused(f"{path} exists: another archive writes to this lake.") from None
        written.unlink()
        sync_folder(path.parent)

    def publish(self, manifest: Manifest) -> None:
        """Move the files of a round to their places; again and again does no harm."""
        staging = self._staging_of(manifest)
        if not staging.is_dir():
            return
        for file in manifest.files:
            place = self.place(file)
            make_folder(place.parent)
            with contextlib.suppress(FileNotFoundError):
                (staging / file.path).rename(place)
        self._sync({self.place(file).parent for file in manifest.files})

    def place(self, file: File) -> Path:
        """Where a published file stands.

        Raises:
            LakeDamaged: the manifest names a place outside the lake.
        """
        parts = Path(file.path).parts
        if len(parts) != 3 or parts[0] != file.table or ".." in parts:
            raise LakeDamaged(f"{self.folder}: a manifest names {file.path!r}, which is no place in a lake.")
        return self.folder.joinpath(*parts)

    def _settle(self, manifest: Manifest) -> None:
        """A manifest that survives a loss of power must not name files that do not."""
        staging = self._staging_of(manifest)
        self._sync({(staging / file.path).parent for file in manifest.files})

    def _sync(self, folders: set[Path]) -> None:
        above = {one for folder in folders for one in folder.parents if one.is_relative_to(self.folder)}
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
    """Where one attempt of a task writes."""
    return staging / f"attempt-{name}"


def make_folder(folder: Path) -> None:
    """A folder, with those above it that are missing, for its owner only."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """What was renamed in a folder stays so when the power fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_whole(path: Path, text: bytes) -> None:
    """A file that has all of it or is not there."""
    written = path.with_suffix(".part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    written.rename(path)
    sync_folder(path.parent)
