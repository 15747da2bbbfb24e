"""The TOML file of an audit of a fleet of services.

An error names the position in the file. Secrets do not belong into the file: `${NAME}` in a URL is the environment
variable of that name. Where it is a part of the URL, its value is percent-encoded, so that a password may hold any
character.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec

from twophase.core.errors import ConfigurationError
from twophase_spark.locations import Location, Role, parse_coordinator, parse_named

_REPORTS = ("html", "json", "junit")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of `[audit]`.

    Each is an option of the command too, which then wins.
    """

    grace: float | None = None
    late: float | None = None
    memory: int | None = None
    cores: int | None = None
    overlap: float | None = None
    every: float | None = None
    complete: bool | None = None
    allow_empty: bool | None = None
    html: str | None = None
    json: str | None = None
    junit: str | None = None
    state: str | None = None
    findings: str | None = None
    baseline: str | None = None
    write_baseline: str | None = None
    since: str | None = None


class _Coordinator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    name: str = "coordinator"


class _Producer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    url: str
    table: str = ""
    urls: tuple[str, ...] = ()


class _Consumer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    url: str
    table: str = ""
    urls: tuple[str, ...] = ()


class _Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    url: str
    table: str
    gid: str = "gid"
    branch: str = "branch_id"
    key: str = ""
    where: str = ""
    rows_per_effect: int = 1
    agrees: str = ""


class _OwnLedger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    table: str
    gid: str = "gid"
    branch: str = "branch_id"
    key: str = ""
    where: str = ""
    rows_per_effect: int = 1
    agrees: str = ""


class _Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One database of a service that begins messages, receives calls, or both."""

    name: str
    url: str
    table: str = ""
    producer: bool = False
    consumer: bool = False
    urls: tuple[str, ...] = ()
    check_urls: tuple[str, ...] = ()
    ledger: _OwnLedger | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    audit: Options = Options()
    coordinator: tuple[_Coordinator, ...] = ()
    producer: tuple[_Producer, ...] = ()
    consumer: tuple[_Consumer, ...] = ()
    ledger: tuple[_Ledger, ...] = ()
    service: tuple[_Service, ...] = ()


class Fleet(msgspec.Struct, frozen=True):
    """The contents of the file."""

    options: Options
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
        file = msgspec.convert(plain, _File)
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
    return Fleet(file.audit, tuple(locations))


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


_Entry = _Coordinator | _Producer | _Consumer | _Ledger | _Service


def _entries(file: _File) -> tuple[tuple[str, tuple[_Entry, ...]], ...]:
    return (
        ("coordinator", file.coordinator),
        ("producer", file.producer),
        ("consumer", file.consumer),
        ("ledger", file.ledger),
        ("service", file.service),
    )


def _described(error: str) -> str:
    """Return msgspec's message with the position as it is written in TOML.

    >>> _described("Object contains unknown field `ulr` - at `$.producer[1]`")
    'in [[producer]] number 2: Object contains unknown field `ulr`'
    """
    what, _, path_of_field = error.partition(" - at ")
    match = re.fullmatch(r"`\$\.(\w+)(?:\[(\d+)\])?(?:\.(.+))?`", path_of_field)
    if match is None:
        return error
    table = f"[{match[1]}]" if match[2] is None else f"[[{match[1]}]] number {int(match[2]) + 1}"
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


def _locations(kind: str, entry: _Entry, url: str) -> list[Location]:
    if isinstance(entry, _Coordinator):
        return [parse_coordinator(f"{entry.name}={url}")]
    if isinstance(entry, _Ledger):
        return [_named(Role.LEDGER, entry.name, url, entry.table, _ledger_query(entry))]
    if isinstance(entry, _Consumer | _Producer):
        return [_named(Role(kind), entry.name, url, entry.table, [("urls", prefix) for prefix in entry.urls])]
    if not entry.producer and not entry.consumer:
        raise ConfigurationError(
            "a service is a producer, a consumer, or both: set producer = true or consumer = true."
        )
    found: list[Location] = []
    if entry.producer:
        found.append(
            _named(Role.PRODUCER, entry.name, url, entry.table, [("urls", prefix) for prefix in entry.check_urls])
        )
    if entry.consumer:
        found.append(_named(Role.CONSUMER, entry.name, url, entry.table, [("urls", prefix) for prefix in entry.urls]))
    if entry.ledger is not None:
        found.append(_named(Role.LEDGER, entry.name, url, entry.ledger.table, _ledger_query(entry.ledger)))
    return found


def _ledger_query(ledger: _Ledger | _OwnLedger) -> list[tuple[str, str]]:
    query = [("gid", ledger.gid), ("branch", ledger.branch), ("rows_per_effect", str(ledger.rows_per_effect))]
    texts = (("key", ledger.key), ("where", ledger.where), ("agrees", ledger.agrees))
    return query + [(name, text) for name, text in texts if text]


def _named(role: Role, name: str, url: str, table: str, query: list[tuple[str, str]]) -> Location:
    from_default = table or ("barrier" if query else "")
    behind = f"{from_default}?{urlencode(query)}" if query else from_default
    return parse_named(role, f"{name}={url}#{behind}" if behind else f"{name}={url}")
