"""docs/benchmarks/figures.json: the last results of each part.

Each part has a time, a machine and an effort of its own. Promise: the results of one run stay when another run measures
other parts, so that a page can be completed part by part. A part that could not be measured keeps its older figures
and records the failure. A quick measurement that replaces a longer one records that, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from benchmarks.parts import Part
from twophase.core.errors import ConfigurationError

QUICK: Final = "quick"


class Record(msgspec.Struct):
    """The whole file."""

    parts: dict[str, Part] = {}

    def put(self, name: str, part: Part) -> None:
        """Record the results of one part."""
        before = self.parts.get(name)
        if before is not None and part.failure:
            part = msgspec.structs.replace(before, failure=f"{part.failure} ({part.measured})")
        elif before is not None and before.has_figures and part.effort == QUICK:
            longer = before.instead_of if before.effort == QUICK else f"{before.effort}, {before.measured}"
            part = msgspec.structs.replace(part, instead_of=longer)
        self.parts[name] = part


class _File(msgspec.Struct):
    """`Record` in the form of the file: one without parts is of an earlier form."""

    parts: dict[str, Part]


def load(file: Path) -> Record:
    """Return the earlier results; nothing when there is no such file.

    Raises:
        ConfigurationError: it is of another form.
    """
    if not file.exists():
        return Record()
    try:
        return Record(msgspec.json.decode(file.read_bytes(), type=_File).parts)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"{file}: no record of benchmarks that can be continued: {error}.",
            remedy="Move it away; then the page begins anew.",
        ) from error


def store(file: Path, record: Record) -> None:
    """Write the file."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
