"""Results on disk, so that a check that was interrupted goes on where it stopped.

A result counts as long as the code, the tests and the fault are the same.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import msgspec

from tests.faults.running import Result
from tests.faults.table import Fault
from tests.faults.tree import files_of

_NOT_TESTED = "tests/faults/"


class _Kept(msgspec.Struct, frozen=True):
    result: Result
    mark: str


class Results:
    """The results so far, by the name of their fault.

    Arguments:
        file: where they are kept.
        root: the checkout whose code they are about.
    """

    def __init__(self, file: Path, root: Path) -> None:
        self._file = file
        self._tree = _tree_mark(root)
        self._kept: dict[str, _Kept] = {}

    def read(self) -> None:
        """Take up what an earlier run left."""
        if self._file.exists():
            self._kept = msgspec.json.decode(self._file.read_bytes(), type=dict[str, _Kept])

    def get(self, fault: Fault) -> Result | None:
        """The result of this fault in this code, if there is one."""
        kept = self._kept.get(fault.name)
        return kept.result if kept is not None and kept.mark == self._mark(fault) else None

    def keep(self, fault: Fault, result: Result) -> None:
        """Remember a result, on disk at once."""
        self._kept[fault.name] = _Kept(result, self._mark(fault))
        scratch = self._file.with_suffix(".new")
        scratch.write_bytes(msgspec.json.encode(self._kept))
        scratch.replace(self._file)

    def _mark(self, fault: Fault) -> str:
        return blake2b(msgspec.json.encode(fault) + self._tree, digest_size=16).hexdigest()


def _tree_mark(root: Path) -> bytes:
    mark = blake2b(digest_size=16)
    for path in files_of(root):
        if path.parts[0] in {"src", "tests"} and not str(path).startswith(_NOT_TESTED):
            mark.update(str(path).encode() + b"\0" + (root / path).read_bytes())
    return mark.digest()
