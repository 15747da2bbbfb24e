"""The request for an audit, in one value.

The command makes it, or a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from twophase.core.errors import ConfigurationError
from twophase_spark.fleet import Options, read_fleet
from twophase_spark.locations import Location, Role, parse_coordinator, parse_named, require_comparable


class Plan(msgspec.Struct, frozen=True):
    """The locations and terms of an audit, and the paths of its reports.

    Times are in seconds; `since_ms` is milliseconds since 1970: the coordinators may not know what was born before.
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
    findings: str | None = None
    state: Path | None = None
    baseline: Path | None = None
    write_baseline: Path | None = None
    since_ms: int = 0


def merged(
    asked: Options, texts: Mapping[Role, Sequence[str]], config: Path | None
) -> tuple[Options, tuple[Location, ...]]:
    """Merge options and locations with those of a file.

    An option wins over the file, and locations add up.

    Raises:
        ConfigurationError: the file or a location cannot be understood, or they prove nothing.
    """
    fleet = None if config is None else read_fleet(config)
    locations = list(fleet.locations) if fleet is not None else []
    for role, given in texts.items():
        locations += [
            parse_coordinator(text) if role is Role.COORDINATOR else parse_named(role, text) for text in given
        ]
    require_comparable(locations)
    named = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    return msgspec.structs.replace(fleet.options if fleet is not None else Options(), **named), tuple(locations)


def plan_of(options: Options, locations: tuple[Location, ...], cores: int) -> Plan:
    """Return the plan of these options, with defaults for those that were not given.

    Raises:
        ConfigurationError: a time is negative, or cannot be understood.
    """
    defaults = Plan(())
    seconds = {name: getattr(options, name) for name in ("grace", "late", "overlap", "every")}
    for name, value in seconds.items():
        if value is not None and value < 0:
            raise ConfigurationError(f"{name} is {value}; seconds are not negative.")
    paths = ("html", "json", "junit", "state", "baseline", "write_baseline")
    return Plan(
        locations=locations,
        grace_s=defaults.grace_s if options.grace is None else options.grace,
        late_s=defaults.late_s if options.late is None else options.late,
        overlap_s=defaults.overlap_s if options.overlap is None else options.overlap,
        complete=bool(options.complete),
        allow_empty=bool(options.allow_empty),
        cores=cores,
        since_ms=_since_ms(options.since),
        findings=options.findings,
        **{name: Path(text) for name in paths if (text := getattr(options, name)) is not None},
    )


def _since_ms(text: str | None) -> int:
    """Return a time as milliseconds since 1970; one without a zone is UTC.

    >>> _since_ms("1970-01-02"), _since_ms("1970-01-01T01:00+01:00"), _since_ms(None)
    (86400000, 0, 0)
    """
    if text is None:
        return 0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"since is {text!r}; a time is 2026-11-01 or 2026-11-01T12:30+01:00.") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
