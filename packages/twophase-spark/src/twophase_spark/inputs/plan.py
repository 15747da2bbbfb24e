"""The request for an audit, in one value.

The command makes it, or a notebook.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from twophase_spark.locations import Location


class Plan(msgspec.Struct, frozen=True):
    """The locations and terms of an audit, and the paths of its reports.

    Times are in seconds.
    """

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
