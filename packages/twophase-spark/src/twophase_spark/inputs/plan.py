"""What an audit is asked to do, in one value: made by the command, or by a notebook."""

from __future__ import annotations

from pathlib import Path

import msgspec

from twophase_spark.locations import Location


class Plan(msgspec.Struct, frozen=True):
    """What to audit, on what terms, and where the reports go. Times are in seconds."""

    locations: tuple[Location, ...]
    grace_s: float = 5.0
    late_s: float = 3600.0
    overlap_s: float = 900.0
    complete: bool = False
    allow_empty: bool = False
    cores: int = 2
    html: Path | None = None
    json: Path | None = None
    junit: Path | None = None
    findings: Path | None = None
    state: Path | None = None
