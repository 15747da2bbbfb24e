"""Results on disk, so that a check that was interrupted goes on where it stopped.

A result counts as long as the fault, the file that it is planted in and the files of its tests are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from tests.faults.running import Result
from tests.faults.table import Fault


class _Kept(msgspec.Struct, frozen=True):
    result: Result
    mark: str


class Results:
    """The results so far; those of faults that are not played stay as they are.

    Arguments:
        file: where they are kept.
        root: the checkout whose code they are about.
        faults: those that are played; how their files stand now is what their results are about.
        resume: take up what an earlier run has left.
    """

    def __init__(self, file: Path, root: Path, faults: Sequence[Fault], *, resume: bool) -> None:
        self._file = file
        self._marks = {fault.name: _mark(fault, root) for fault in faults}
        self._kept: dict[str, _Kept] = {}
        if file.exists():
            self._kept = msgspec.json.decode(file.read_bytes(), type=dict[str, _Kept])
        if not resume:
            for name in self._marks:
                self._kept.pop(name, None)

    def get(self, fault: Fault) -> Result | None:
        """The result of this fault in this code, if there is one."""
        kept = self._kept.get(fault.name)
        return kept.result if kept is not None and kept.mark == self._marks[fault.name] else None

    def keep(self, fault: Fault, result: Result) -> None:
        """Remember a result, on disk at once."""
        self._kept[fault.name] = _Kept(result, self._marks[fault.name])
        scratch = self._file.with_suffix(".new")
        scratch.write_bytes(msgspec.json.encode(self._kept))
        scratch.replace(self._file)


def _mark(fault: Fault, root: Path) -> str:
    mark = blake2b(msgspec.json.encode(fault), digest_size=16)
    for name in (fault.file, *(test.partition("::")[0] for test in fault.tests)):
        mark.update((root / name).read_bytes())
    return mark.hexdigest()
