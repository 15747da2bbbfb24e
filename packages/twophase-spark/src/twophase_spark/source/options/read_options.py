"""The options of a read, checked once.

Unknown, contradictory and misspelt ones are refused before anything is read. Filters are options because Spark 4.3 does
not hand a source's reader its filters without risk: the filters that one use of a DataFrame pushes down stick to its
other uses, and an anti join then finds nothing. They save reading; `where` on the DataFrame expresses what they cannot.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import STORED
from twophase_spark.option_table import (
    Option,
    identifier,
    identifier_or_none,
    one_of,
    require_fitting,
    table_of,
    values_of,
    whole,
    words,
)
from twophase_spark.readers.snapshot import ADBC, AUTO, PYTHON
from twophase_spark.source.options.address import require_no_secret
from twophase_spark.source.options.given import given_options
from twophase_spark.source.schema.tables import HAS_STATE, OF_COORDINATOR, PLACES, TIME_OF_CREATION, Kind

GIDS_MAX: Final = 1000
ROWS_MAX: Final = 2**31 - 1
EARLIEST, LATEST, BEGINNING = "earliest", "latest", "beginning"
FAIL, REPORT = "fail", "report"
READ, STREAM = "read", "readStream"
_QUEUE = re.compile(r".+/[0-9]{1,9}")
_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]{1,64}")
_STATES = {state.name.lower(): int(state) for state in STORED}
_one_state = one_of(_STATES, _STATES.__getitem__)


def _reference(_: str, text: str) -> str:
    return require_no_secret(text)


def _states(option: str, text: str) -> frozenset[int]:
    return frozenset(_one_state(option, word) for word in words(option, text))


def _gids(option: str, text: str) -> tuple[str, ...]:
    gids = tuple(dict.fromkeys(words(option, text)))
    if len(gids) > GIDS_MAX:
        raise ConfigurationError(f"Option gids names {len(gids)} gids; at most {GIDS_MAX} are looked up. Join instead.")
    return gids


def time_ms(option: str, text: str) -> int:
    """Return a time in milliseconds since 1970.

    The text is that number, or ISO 8601 (UTC where it names no zone).

    >>> time_ms("asOf", "1970-01-02"), time_ms("asOf", "86400000")
    (86400000, 86400000)
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"Option {option} is a time: 2026-11-21T20:00:00Z or milliseconds since 1970, not {text!r}."
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _snapshot(_: str, text: str) -> str:
    if text and not _SNAPSHOT.fullmatch(text):
        raise ConfigurationError("Option snapshot is what pg_export_snapshot() returned.")
    return text


_OF_STREAM, _OF_BUSINESS, _OF_LEDGER = ((STREAM,),), ((Kind.BARRIER, Kind.LEDGER),), ((Kind.LEDGER,),)
_STATEFUL = (tuple(kind for kind in Kind if kind in HAS_STATE),)
_TIMED = (tuple(TIME_OF_CREATION),)
_WITH_GIDS = (tuple(kind for kind in Kind if kind not in {Kind.AUDIT_LOG, Kind.QUEUE_PROGRESS}),)


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request of a read; the options that make it are

    url: The database, never with a password: `env:NAME` or `file:PATH` (with the whole URL), or `sqlite:///file.db`,
        `postgresql://user@host/db`, `mysql://user@host/db`.
    table: One of the tables below.
    name: The database's name in errors.
    columns: The columns, comma-separated. Other columns are not read; Spark alone would read all.
    states: For messages: any of `prepared,submitted,succeeded,failed`.
    createdAfter: Only rows created at or after this time.
    createdBefore: Only rows created before this time.
    gidPrefix: Only gids with this beginning.
    gids: Only these gids, comma-separated, at most 1000; looked up by the table's index.
    partitions: Most tasks (1 to 1024); small tables get fewer.
    driver: `adbc` or `python` forces one; `auto` uses ADBC if it is installed and fits.
    asOf: The cut: a past time, or for `history` a map from node to seq, `{"1": 4711}`.
    snapshot: For PostgreSQL: a snapshot that another session has exported.
    maxRowsPerBatch: Most rows of a micro-batch, shared by the nodes or queues.
    start: Where a stream without checkpoint begins: at the `earliest` existing row, the `latest`, the `beginning`
        (removed rows are a gap), or a map from node to the last seq before it; for `queue_entry` a map from topic and
        queue to its first number, `{"orders/0": 4711}`.
    onGap: Rows that were removed before they were read: `fail` ends the stream with TP-8003, `report` replaces them by
        a row.
    tableName: `table` or `schema.table` in the database.
    keyColumn: An indexed integer or text by which the table is split.
    gidColumn: The column with the gid.
    branchColumn: The column with the branch id; empty if the ledger has no such column.

    Times are milliseconds since 1970; an option that was not given is empty or None. `as_of_seqs` is the last seq of
    each node, instead of a time; `start_seqs` where a stream begins, instead of a word, by the name of a node or queue.
    """

    url: Annotated[str, Option(_reference)]
    kind: Annotated[Kind, Option(one_of(Kind, Kind), name="table", shown="required; `history` for a stream")]
    name: Annotated[str, Option(identifier)] = "source"
    columns: Annotated[
        tuple[str, ...], Option(words, shown="all but those of a body; of a ledger `gid,branch_id`")
    ] = ()
    states: Annotated[frozenset[int], Option(_states, _STATEFUL, shown="all")] = frozenset()
    created_after_ms: Annotated[int | None, Option(time_ms, _TIMED, "createdAfter")] = None
    created_before_ms: Annotated[int | None, Option(time_ms, _TIMED, "createdBefore")] = None
    gid_prefix: Annotated[str, Option(fits=_WITH_GIDS)] = ""
    gids: Annotated[tuple[str, ...], Option(_gids, _WITH_GIDS, shown="all")] = ()
    as_of_ms: Annotated[int | None, Option(fits=((READ,), *_TIMED), name="asOf", shown="now")] = None
    as_of_seqs: dict[int, int] | None = None
    snapshot: Annotated[str, Option(_snapshot, ((READ,),))] = ""
    partitions: Annotated[int, Option(whole(1, 1024))] = 8
    driver: Annotated[str, Option(one_of((AUTO, ADBC, PYTHON)))] = AUTO
    rows_per_batch_max: Annotated[int, Option(whole(0, ROWS_MAX), _OF_STREAM, "maxRowsPerBatch", "no limit")] = 0
    start: Annotated[str, Option(fits=_OF_STREAM)] = EARLIEST
    start_seqs: dict[str, int] | None = None
    on_gap: Annotated[str, Option(one_of((FAIL, REPORT)), _OF_STREAM)] = FAIL
    relation: Annotated[
        str, Option(identifier, _OF_BUSINESS, "tableName", f"`{DEFAULT_TABLE}`; of a ledger required")
    ] = DEFAULT_TABLE
    key_column: Annotated[str, Option(identifier_or_none, _OF_BUSINESS, shown="see below")] = ""
    gid_column: Annotated[str, Option(identifier, _OF_LEDGER)] = "gid"
    branch_column: Annotated[str, Option(identifier_or_none, _OF_LEDGER)] = "branch_id"

    @property
    def filters(self) -> bool:
        """True when rows of the table may be left out."""
        return bool(self.states or self.gid_prefix or self.gids) or any(
            bound is not None for bound in (self.created_after_ms, self.created_before_ms, self.as_of_ms)
        )


OPTIONS = table_of(ReadOptions)
STREAM_ONLY = tuple(option.name for option in OPTIONS if option.fits == _OF_STREAM)


def parse(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Parse the options of `spark.read` or `spark.readStream`.

    Their names may be in any case.

    >>> parse({"url": "sqlite:///tp.db", "table": "history", "states": "failed"}).states
    frozenset({5})

    Raises:
        ConfigurationError: naming the option and what it may be.
    """
    given = given_options(options, OPTIONS, "source")
    values = values_of(OPTIONS, {"table": Kind.HISTORY if streaming else "", **given})
    kind = values["kind"]
    _require_fitting(given, kind, streaming=streaming)
    values |= _moment(given.get("asOf"), kind) | _start(given.get("start", EARLIEST), kind)
    if kind in OF_COORDINATOR:
        values["relation"] = ""
    return ReadOptions(**values)


def _require_fitting(given: Mapping[str, str], kind: Kind, *, streaming: bool) -> None:
    """Refuse options that would silently do nothing."""
    if streaming and kind not in PLACES:
        raise ConfigurationError(
            f"Only tables history and queue_entry can be followed as a stream, not {kind}: they are those whose rows "
            "never change."
        )
    use = STREAM if streaming else READ
    require_fitting(OPTIONS, given, (use, kind), f"{use} of table {kind}")
    if "tableName" not in given and kind is Kind.LEDGER:
        raise ConfigurationError("Option tableName is missing: the name of the ledger in its database.")


def _moment(text: str | None, kind: Kind) -> dict[str, Any]:
    if text is None or not text.startswith("{"):
        moment = None if text is None else time_ms("asOf", text)
        if moment is not None and moment > now_ms():
            raise ConfigurationError(
                f"Option asOf is in the future: {text!r}; a cut is made at a time that has passed."
            )
        return {"as_of_ms": moment, "as_of_seqs": None}
    if kind is not Kind.HISTORY:
        raise ConfigurationError("Option asOf as a map of nodes is for table history; others take a time.")
    return {"as_of_ms": None, "as_of_seqs": _seqs("asOf", text)}


def now_ms() -> int:
    """Return the time, by the driver's clock."""
    return time.time_ns() // 1_000_000


def _start(text: str, kind: Kind) -> dict[str, Any]:
    if not text.startswith("{"):
        return {"start": one_of((EARLIEST, LATEST, BEGINNING))("start", text), "start_seqs": None}
    if kind is Kind.QUEUE_ENTRY:
        return {"start": BEGINNING, "start_seqs": _numbers(text)}
    return {"start": BEGINNING, "start_seqs": {str(node): seq for node, seq in _seqs("start", text).items()}}


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
