"""The options of a read, checked once.

Unknown, contradictory and misspelt ones are refused before anything is read. Filters are options because Spark 4.3 does
not hand a source's reader its filters without risk: the filters that one use of a DataFrame pushes down stick to its
other uses, and an anti join then finds nothing. They save reading; `where` on the DataFrame expresses what they cannot.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import STORED
from twophase_spark.datasource.options.address import require_no_secret
from twophase_spark.datasource.options.described import KNOWN, Fits, names_of
from twophase_spark.datasource.options.given import given_options
from twophase_spark.datasource.schema.tables import HAS_STATE, OF_COORDINATOR, PLACES, TIME_OF_CREATION, Kind
from twophase_spark.readers.snapshot import ADBC, AUTO, PYTHON

PARTITIONS_DEFAULT = 8
PARTITIONS_MAX = 1024
GIDS_MAX = 1000
EARLIEST, LATEST, BEGINNING = "earliest", "latest", "beginning"
FAIL, REPORT = "fail", "report"
_Value = TypeVar("_Value")
_QUEUE = re.compile(r".+/[0-9]{1,9}")
_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]{1,64}")
_STATES = {state.name.lower(): int(state) for state in STORED}
STREAM_ONLY = names_of(Fits.STREAM)


class ReadOptions(msgspec.Struct, frozen=True):
    """The request of a read.

    Times are milliseconds since 1970; an option that was not given is empty or None. `as_of_seqs`: the last seq of each
    node, instead of a time; `start_seqs`: where a stream begins, instead of a word, by the name of a node or queue.
    """

    url: str
    kind: Kind
    name: str = "source"
    relation: str = ""
    gid_column: str = "gid"
    branch_column: str = "branch_id"
    key_column: str = ""
    columns: tuple[str, ...] = ()
    states: frozenset[int] = frozenset()
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    gid_prefix: str = ""
    gids: tuple[str, ...] = ()
    as_of_ms: int | None = None
    as_of_seqs: dict[int, int] | None = None
    snapshot: str = ""
    partitions: int = PARTITIONS_DEFAULT
    driver: str = AUTO
    rows_per_batch_max: int = 0
    start: str = EARLIEST
    start_seqs: dict[str, int] | None = None
    on_gap: str = FAIL

    @property
    def filters(self) -> bool:
        """True when rows of the table may be left out."""
        return bool(self.states or self.gid_prefix or self.gids) or any(
            bound is not None for bound in (self.created_after_ms, self.created_before_ms, self.as_of_ms)
        )


def parse(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Parse the options of `spark.read` or `spark.readStream`.

    Their names may be in any case.

    >>> parse({"url": "sqlite:///tp.db", "table": "history", "states": "failed"}).states
    frozenset({5})

    Raises:
        ConfigurationError: naming the option and what it may be.
    """
    given = given_options(options, KNOWN, "source")
    if "url" not in given:
        raise ConfigurationError(
            "Option url is missing: sqlite:///file.db, postgresql://user@host/db, env:NAME or file:PATH."
        )
    url = require_no_secret(given["url"])
    kind = _one_of("table", given.get("table", Kind.HISTORY if streaming else ""), tuple(Kind), Kind)
    _require_fitting(given, kind, streaming=streaming)
    as_of_ms, as_of_seqs = _moment(given, kind)
    start, start_seqs = _start(given.get("start", EARLIEST), kind)
    return ReadOptions(
        url=url,
        kind=kind,
        name=_name("name", given.get("name", "source")),
        relation=_relation(given, kind),
        gid_column=_name("gidColumn", given.get("gidColumn", "gid")),
        branch_column=_name_or_none("branchColumn", given.get("branchColumn", "branch_id")),
        key_column=_name_or_none("keyColumn", given.get("keyColumn", "")),
        columns=tuple(_list(given.get("columns", ""))),
        states=_states(given.get("states", "")),
        created_after_ms=_time("createdAfter", given.get("createdAfter")),
        created_before_ms=_time("createdBefore", given.get("createdBefore")),
        gid_prefix=given.get("gidPrefix", ""),
        gids=_gids(given.get("gids", "")),
        as_of_ms=as_of_ms,
        as_of_seqs=as_of_seqs,
        snapshot=_snapshot(given.get("snapshot", "")),
        partitions=_number("partitions", given.get("partitions", str(PARTITIONS_DEFAULT)), 1, PARTITIONS_MAX),
        driver=_one_of("driver", given.get("driver", AUTO), (AUTO, ADBC, PYTHON), str),
        rows_per_batch_max=_number("maxRowsPerBatch", given.get("maxRowsPerBatch", "0"), 0, 2**31 - 1),
        start=start,
        start_seqs=start_seqs,
        on_gap=_one_of("onGap", given.get("onGap", FAIL), (FAIL, REPORT), str),
    )


def _require_fitting(given: Mapping[str, str], kind: Kind, *, streaming: bool) -> None:
    """Refuse options that would silently do nothing."""
    if streaming and kind not in PLACES:
        raise ConfigurationError(
            f"Only tables history and queue_entry can be followed as a stream, not {kind}: they are those whose rows "
            "never change."
        )
    _refuse(given, names_of(Fits.BATCH) if streaming else STREAM_ONLY, f"of {'readStream' if streaming else 'read'}")
    if kind in OF_COORDINATOR:
        _refuse(given, names_of(Fits.BUSINESS, Fits.LEDGER), f"of table {kind}")
    if kind not in HAS_STATE:
        _refuse(given, ("states",), f"of table {kind}")
    if kind not in TIME_OF_CREATION:
        _refuse(
            given, ("createdAfter", "createdBefore", "asOf"), f"of table {kind}: which column is the time is not known"
        )
    if kind in {Kind.AUDIT_LOG, Kind.QUEUE_PROGRESS}:
        _refuse(given, ("gids", "gidPrefix"), f"of table {kind}")
    if kind is Kind.BARRIER:
        _refuse(given, names_of(Fits.LEDGER), f"of table {kind}")


def _refuse(given: Mapping[str, str], names: Iterable[str], where: str) -> None:
    for name in names:
        if name in given:
            raise ConfigurationError(f"Option {name} is not one {where}.")


def _relation(given: Mapping[str, str], kind: Kind) -> str:
    if kind in OF_COORDINATOR:
        return ""
    if "tableName" not in given and kind is Kind.LEDGER:
        raise ConfigurationError("Option tableName is missing: the name of the ledger in its database.")
    return _name("tableName", given.get("tableName", DEFAULT_TABLE))


def _name(option: str, text: str) -> str:
    try:
        return validate_table(text)
    except ConfigurationError:
        raise ConfigurationError(f"Option {option}: {text!r} is not a name of letters, digits and _.") from None


def _name_or_none(option: str, text: str) -> str:
    return _name(option, text) if text else ""


def _states(text: str) -> frozenset[int]:
    return frozenset(_one_of("states", word, _STATES, _STATES.__getitem__) for word in _list(text))


def _one_of(option: str, text: str, known: Iterable[str], made: Callable[[str], _Value]) -> _Value:
    words = {str(word).lower(): str(word) for word in known}
    if text.lower() not in words:
        raise ConfigurationError(f"Option {option} is one of {', '.join(words)}, not {text!r}.")
    return made(words[text.lower()])


def _list(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _gids(text: str) -> tuple[str, ...]:
    gids = tuple(dict.fromkeys(_list(text)))
    if len(gids) > GIDS_MAX:
        raise ConfigurationError(f"Option gids names {len(gids)} gids; at most {GIDS_MAX} are looked up. Join instead.")
    return gids


def _number(option: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ConfigurationError(f"Option {option} is a whole number from {least} to {most}, not {text!r}.")
    return int(text)


def _time(option: str, text: str | None) -> int | None:
    """Return a time in milliseconds since 1970.

    The text is that number, or ISO 8601 (UTC where it names no zone).
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"Option {option} is a time: 2026-11-21T20:00:00Z or milliseconds since 1970, not {text!r}."
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _moment(given: Mapping[str, str], kind: Kind) -> tuple[int | None, dict[int, int] | None]:
    text = given.get("asOf")
    if text is None or not text.startswith("{"):
        moment = _time("asOf", text)
        if moment is not None and moment > now_ms():
            raise ConfigurationError(
                f"Option asOf is in the future: {text!r}; a cut is made at a time that has passed."
            )
        return moment, None
    if kind is not Kind.HISTORY:
        raise ConfigurationError("Option asOf as a map of nodes is for table history; others take a time.")
    return None, _seqs("asOf", text)


def now_ms() -> int:
    """Return the time, by the driver's clock."""
    return time.time_ns() // 1_000_000


def _start(text: str, kind: Kind) -> tuple[str, dict[str, int] | None]:
    if text.startswith("{"):
        if kind is Kind.QUEUE_ENTRY:
            return BEGINNING, _numbers(text)
        return BEGINNING, {str(node): seq for node, seq in _seqs("start", text).items()}
    return _one_of("start", text, (EARLIEST, LATEST, BEGINNING), str), None


def _seqs(option: str, text: str) -> dict[int, int]:
    try:
        seqs = msgspec.json.decode(text, type=dict[int, int])
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise ConfigurationError(f'Option {option} as a map is JSON, node to seq: {{"1": 4711}}.') from None
    if any(number < 0 for pair in seqs.items() for number in pair):
        raise ConfigurationError(f"Option {option}: nodes and seqs are not negative.")
    return seqs


def _numbers(text: str) -> dict[str, int]:
    try:
        numbers = msgspec.json.decode(text, type=dict[str, Annotated[int, msgspec.Meta(ge=0)]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        numbers = {"": 0}
    if not all(_QUEUE.fullmatch(name) for name in numbers):
        raise ConfigurationError('Option start as a map is JSON, topic and queue to number: {"orders/0": 4711}.')
    return numbers


def _snapshot(text: str) -> str:
    if text and not _SNAPSHOT.fullmatch(text):
        raise ConfigurationError("Option snapshot is what pg_export_snapshot() returned.")
    return text
