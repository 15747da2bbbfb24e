"""The faults: read from `table/*.toml`, and compared with the code and the tests.

A fault names the text that it replaces, and the text must stand exactly once in its file. So a fault whose code has
moved is a misfit, which is reported by name, and never counts as one that was caught.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER: Final = Path(__file__).with_name("table")
EDGES: Final = "edges"
RULES: Final = 25
_SOURCE: Final = "src/twophase"
_SHOWN_MAX: Final = 100


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault.

    `rule` is the number of the rule that the text keeps (docs/explanation/rules.md), or "edges" for one of the rules at
    the edges (docs/explanation/promises.md). `breaks` says what goes wrong, `tests` who should notice: paths and node
    ids of pytest, the narrowest set.
    """

    name: str
    rule: int | str
    breaks: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    @property
    def room(self) -> str:
        """The folder of the source that the fault is planted in.

        >>> Fault("f", 2, "", "src/twophase/barrier/producer.py", "a", "b", ()).room
        'barrier'
        """
        return self.file.removeprefix(f"{_SOURCE}/").partition("/")[0]

    @property
    def order(self) -> tuple[int, str]:
        """By rule, the edges last."""
        return (self.rule if isinstance(self.rule, int) else RULES + 1), self.name


class Misfit(msgspec.Struct, frozen=True):
    """A fault that cannot be planted as it is written, and why."""

    name: str
    why: str


def load(folder: Path = FOLDER) -> list[Fault]:
    """All faults, by rule.

    Raises:
        ValueError: a table is not as it should be, or two faults have one name.
    """
    faults: dict[str, Fault] = {}
    for file in sorted(folder.glob("*.toml")):
        for name, fields in tomllib.loads(file.read_text()).items():
            if name in faults:
                raise ValueError(f"{file.name}: there are two faults {name!r}.")
            faults[name] = _read(file, name, fields)
    return sorted(faults.values(), key=lambda fault: fault.order)


def _read(file: Path, name: str, fields: dict[str, Any]) -> Fault:
    try:
        fault = msgspec.convert({"name": name, **fields}, Fault)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file.name}: {name}: {error}") from error
    if fault.rule != EDGES and fault.rule not in range(1, RULES + 1):
        raise ValueError(f"{file.name}: {name}: rule is 1 to {RULES}, or {EDGES!r}.")
    if fault.text == fault.instead or not fault.text or not fault.tests:
        raise ValueError(f"{file.name}: {name}: a fault has a text, another text instead, and tests.")
    return fault


def misfits(faults: Sequence[Fault], root: Path) -> list[Misfit]:
    """The faults that no longer apply to the code below `root`, or lack their tests."""
    return [Misfit(fault.name, why) for fault in faults for why in _reasons(fault, root)]


def _reasons(fault: Fault, root: Path) -> list[str]:
    shown = repr(fault.text if len(fault.text) <= _SHOWN_MAX else f"{fault.text[:_SHOWN_MAX]}…")
    path = root / fault.file
    reasons = []
    if not path.is_file():
        reasons.append(f"file not found: {fault.file}{_found_at(fault.text, root)}")
    elif (times := path.read_text().count(fault.text)) == 0:
        reasons.append(f"text not found: {shown} in {fault.file}{_found_at(fault.text, root)}")
    elif times > 1:
        reasons.append(f"text found {times} times, not once: {shown} in {fault.file}")
    return reasons + [f"test not found: {test}" for test in fault.tests if not _is_there(test, root)]


def _found_at(text: str, root: Path) -> str:
    """Where the text stands now, as a hint for repairing the table."""
    files = [file for file in sorted((root / _SOURCE).rglob("*")) if file.suffix in {".py", ".sql"}]
    places = [str(file.relative_to(root)) for file in files if text in file.read_text()]
    return f"; it stands in {', '.join(places)}" if places else ""


def _is_there(test: str, root: Path) -> bool:
    path, *names = test.split("::")
    if not (root / path).exists():
        return False
    name = names[-1].partition("[")[0] if names else ""
    return not name or re.search(rf"\b(def|class) {re.escape(name)}\b", (root / path).read_text()) is not None
