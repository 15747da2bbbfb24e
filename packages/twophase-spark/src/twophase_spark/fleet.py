"""The TOML file of an audit of a fleet of services.

An error names the position in the file. Secrets do not belong into the file: `${NAME}` in a URL is the environment
variable of that name. Where it is a part of the URL, its value is percent-encoded, so that a password may hold any
character.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from twophase.core.errors import ConfigurationError
from twophase_spark.locations import PARAMETERS, Location, Role, location_of
from twophase_spark.option_table import Option, table_of, unknown

WITH_STATE = "an audit with state"
_REPORTS = ("html", "json", "junit")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


Seconds = Annotated[float, Meta(ge=0)]


class Moment(int):
    """A time in milliseconds since 1970.

    Its text is `2026-11-01` or `2026-11-01T12:30+01:00`, UTC where it names no zone.
    """


class Options(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    rename={"grace_s": "grace", "late_s": "late", "every_s": "every", "overlap_s": "overlap"}
    | {"since_ms": "since", "memory_mb": "memory"},
):
    """The terms of an audit: keys of `[audit]`, and options of the command.

    grace: Seconds before suspicious messages are read again.
    late: Seconds after which an unfinished message counts as late.
    html: Write the report as a page to this file.
    json: Write the report as JSON to this file.
    junit: Write the report as JUnit XML to this file.
    findings: Append every finding to this Delta table: a folder, or a URL.
    state: Audit only what came since the run that wrote this file, and update it.
    baseline: Broken messages that this file acknowledges fail no audit; see --write-baseline.
    write_baseline: Write a file for --baseline that acknowledges all that is broken now.
    since: Do not expect coordinators to know what was born before, such as 2026-11-01.
    every: With --state: repeat after this many seconds, until stopped.
    overlap: Seconds a transaction may stay open, with --state.
    complete: Exit with 2 if anything could not be checked.
    allow_empty: Accept databases without any message.
    memory: Memory for Spark in MiB.
    cores: Cores for Spark.
    """

    grace_s: Annotated[Seconds, Option()] = 5.0
    late_s: Annotated[Seconds, Option()] = 3600.0
    html: Annotated[Path | None, Option()] = None
    json: Annotated[Path | None, Option()] = None
    junit: Annotated[Path | None, Option()] = None
    findings: Annotated[str | None, Option()] = None
    state: Annotated[Path | None, Option()] = None
    baseline: Annotated[Path | None, Option()] = None
    write_baseline: Annotated[Path | None, Option()] = None
    since_ms: Annotated[Moment, Option(shown="all are expected")] = Moment(0)
    every_s: Annotated[Seconds | None, Option()] = None
    overlap_s: Annotated[Seconds, Option(fits=((WITH_STATE,),))] = 900.0
    complete: Annotated[bool, Option()] = False
    allow_empty: Annotated[bool, Option()] = False
    memory_mb: Annotated[int, Meta(ge=512), Option()] = 2048
    cores: Annotated[int, Meta(ge=1), Option(shown="all, at most 8")] = 2


OPTIONS = table_of(Options)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    url: str
    table: str = ""


class _Coordinator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    name: str = Role.COORDINATOR.value


class _Barrier(_Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    urls: tuple[str, ...] = ()


class _OwnLedger(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    table: str
    gid: str | None = None
    branch: str | None = None
    key: str | None = None
    where: str | None = None
    rows_per_effect: int | None = None
    agrees: str | None = None


class _Ledger(_OwnLedger, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    url: str


class _Service(_Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One database of a service that begins messages, receives calls, or both."""

    producer: bool = False
    consumer: bool = False
    urls: tuple[str, ...] = ()
    check_urls: tuple[str, ...] = ()
    ledger: _OwnLedger | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    audit: Options = Options()
    coordinator: tuple[_Coordinator, ...] = ()
    producer: tuple[_Barrier, ...] = ()
    consumer: tuple[_Barrier, ...] = ()
    ledger: tuple[_Ledger, ...] = ()
    service: tuple[_Service, ...] = ()


_KINDS = {
    "audit": Options,
    "coordinator": _Coordinator,
    "producer": _Barrier,
    "consumer": _Barrier,
    "ledger": _Ledger,
    "service": _Service,
    "service.ledger": _OwnLedger,
}


class Fleet(msgspec.Struct, frozen=True):
    """The contents of the file; `options` are the keys of `[audit]` that it has."""

    options: dict[str, Any]
    locations: tuple[Location, ...]


def read_fleet(path: Path, environment: Mapping[str, str] = os.environ) -> Fleet:
    """Return the file's contents, checked as a whole before anything is opened.

    Raises:
        ConfigurationError: it is missing, no TOML, or something in it is unknown, of a wrong type, or refers to a
            variable that is not set; the text names the position.
    """
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}.") from None
    try:
        file = msgspec.convert(plain, _File, dec_hook=_made)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: {_described(str(error))}.") from None
    locations: list[Location] = []
    for kind, entries in _entries(file):
        for number, entry in enumerate(entries, 1):
            entry_name = f"{path}, [[{kind}]] {entry.name!r} (number {number})"
            try:
                locations += _locations(kind, entry, _resolved(entry.url, environment))
            except ConfigurationError as error:
                raise ConfigurationError(f"{entry_name}: {error.message}") from None
    return Fleet(plain.get("audit", {}), tuple(locations))


def options_of(given: Mapping[str, object]) -> Options:
    """Return the terms of an audit, with defaults for those that are not given.

    >>> options_of({"grace": 2, "since": "1970-01-02"}).since_ms
    86400000

    Raises:
        ConfigurationError: one is out of its bounds, or cannot be understood.
    """
    try:
        return msgspec.convert(given, Options, dec_hook=_made)
    except msgspec.ValidationError as error:
        what, _, name = str(error).partition(" - at `$.")
        raise ConfigurationError(f"{name.rstrip('`')}: {what}.") from None


def _made(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind is not Moment:
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if isinstance(value, Moment):
        return value
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{str(value)!r} is no time such as 2026-11-01 or 2026-11-01T12:30+01:00") from None
    return Moment((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def reports_named(path: Path) -> dict[str, Path]:
    """Return the paths of `[audit]`'s reports, whatever else is wrong in the file.

    A file that is no TOML has none.
    """
    try:
        plain = tomllib.loads(path.read_text("utf-8")).get("audit")
    except (OSError, ValueError):
        return {}
    audit = plain if isinstance(plain, dict) else {}
    return {name: Path(audit[name]) for name in _REPORTS if isinstance(audit.get(name), str)}


_Any = _Coordinator | _Barrier | _Ledger | _Service


def _entries(file: _File) -> tuple[tuple[str, tuple[_Any, ...]], ...]:
    return (
        ("coordinator", file.coordinator),
        ("producer", file.producer),
        ("consumer", file.consumer),
        ("ledger", file.ledger),
        ("service", file.service),
    )


def _described(error: str) -> str:
    """Return msgspec's message with the position as it is written in TOML.

    >>> _described("Object missing required field `url` - at `$.producer[1]`")
    'in [[producer]] number 2: Object missing required field `url`'
    """
    what, _, path_of_field = error.partition(" - at ")
    match = re.fullmatch(r"`\$\.(\w+)(?:\[(\d+)\])?(?:\.(.+))?`", path_of_field)
    if match is None:
        return error
    table = f"[{match[1]}]" if match[2] is None else f"[[{match[1]}]] number {int(match[2]) + 1}"
    misspelt = re.fullmatch(r"Object contains unknown field `(.+)`", what)
    if misspelt is not None:
        of = f"{match[1]}.{match[3]}" if match[3] else match[1]
        what = unknown(misspelt[1], _KINDS[of].__struct_encode_fields__, f"[{of}]").message
    return f"in {table}{', ' + match[3] if match[3] else ''}: {what}"


def _resolved(url: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigurationError(f"the environment variable {match[1]} is not set.")
        found = environment[match[1]]
        return found if match[0] == url else quote(found, safe="")

    resolved = _REFERENCE.sub(value, url)
    if "#" in resolved:
        raise ConfigurationError("no # in url here; `table`, `urls`, `gid` and `branch` are keys of their own.")
    return resolved


def _locations(kind: str, entry: _Any, url: str) -> list[Location]:
    if isinstance(entry, _Coordinator):
        return [location_of(Role.COORDINATOR, entry.name, url, "", {})]
    if not isinstance(entry, _Service):
        return [location_of(Role(kind), entry.name, url, entry.table, _parameters(entry))]
    if not entry.producer and not entry.consumer:
        raise ConfigurationError(
            "a service is a producer, a consumer, or both: set producer = true or consumer = true."
        )
    for named, role, is_role in (("check_urls", "producer", entry.producer), ("urls", "consumer", entry.consumer)):
        if getattr(entry, named) and not is_role:
            raise ConfigurationError(f"{named} means nothing without {role} = true.")
    found: list[Location] = []
    if entry.producer:
        found.append(location_of(Role.PRODUCER, entry.name, url, entry.table, {"urls": entry.check_urls}))
    if entry.consumer:
        found.append(location_of(Role.CONSUMER, entry.name, url, entry.table, {"urls": entry.urls}))
    if entry.ledger is not None:
        found.append(location_of(Role.LEDGER, entry.name, url, entry.ledger.table, _parameters(entry.ledger)))
    return found


def _parameters(entry: _Barrier | _OwnLedger) -> dict[str, Sequence[str]]:
    given = {option.name: getattr(entry, option.name, None) for option in PARAMETERS}
    return {
        name: value if isinstance(value, tuple) else [str(value)] for name, value in given.items() if value is not None
    }
