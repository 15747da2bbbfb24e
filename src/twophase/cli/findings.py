"""Findings of a doctor, in one or two lines each.

A finding has the thing that was looked at, its condition, and what to do about it.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from twophase.core.printable import printable


class Level(enum.StrEnum):
    """The weight of a finding."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at; `remedy` is empty when there is nothing to do."""

    level: Level
    what: str
    found: str
    remedy: str = ""


_STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.BAD: "bold red"}
_WHAT_WIDTH: Final = 14


def show(console: Console, finding: Finding) -> None:
    """Print a finding; its texts are never read as markup."""
    line = Text(f"{finding.level.value:<7}", style=_STYLES[finding.level])
    line.append(f"  {finding.what:<{_WHAT_WIDTH}}  {printable(finding.found)}", style="default not bold")
    console.print(line, highlight=False, soft_wrap=True)
    if finding.remedy and finding.level is not Level.OK:
        console.print(Text(f"         → {printable(finding.remedy)}"), highlight=False, soft_wrap=True)
