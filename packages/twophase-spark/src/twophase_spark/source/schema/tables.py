"""The tables of the source and their columns.

They are defined only here, for Spark, for Arrow and for the SQL that fills them. States are names, times are
milliseconds since 1970 as the databases hold them. The parts of a message's body (its branches, its check address) are
columns of their own; payloads only when they are asked for by name, and headers never, because they carry credentials.
"""

from __future__ import annotations

import enum

import msgspec
import pyarrow as pa

from twophase.core.lifecycle import State

STATE_NAMES = tuple(state.name.lower() for state in State)
BRANCH = pa.struct([("branch_id", pa.string()), ("url", pa.string()), ("payload_bytes", pa.int32())])


class Kind(enum.StrEnum):
    """The values of option `table`."""

    MESSAGE = "message"
    HISTORY = "history"
    JOURNAL = "journal"
    ATTEMPT = "attempt"
    AUDIT_LOG = "audit_log"
    QUEUE_ENTRY = "queue_entry"
    QUEUE_PROGRESS = "queue_progress"
    BARRIER = "barrier"
    LEDGER = "ledger"


class Column(msgspec.Struct, frozen=True):
    """One column. `default`: part of a read that names no columns."""

    name: str
    type: pa.DataType
    default: bool = True


def _columns(*pairs: tuple[str, pa.DataType], default: bool = True) -> tuple[Column, ...]:
    return tuple(Column(name, kind, default) for name, kind in pairs)


_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_TIME = pa.timestamp("us", "UTC")

IN_BODY = _columns(
    ("branches", pa.list_(pa.field("element", BRANCH))),
    ("check_url", _TEXT),
    ("protocol", _TEXT),
    ("delay_ms", _LONG),
    ("payloads", pa.list_(pa.field("element", pa.binary()))),
    default=False,
)
"""Columns taken from a message's body, which is decoded only when they are named.

All are null when the body cannot be read.
"""

_DECIDED = _columns(
    ("gid", _TEXT),
    ("state", _TEXT),
    ("created_ms", _LONG),
    ("decided_ms", _LONG),
    ("decided_by", _TEXT),
    ("attempts", _INT),
    ("done", _LONG),
)
_PLACE = _columns(("node", _INT), ("seq", _LONG))
_END = _columns(("finished_ms", _LONG), ("reason", _TEXT))
_LIVE = _columns(("parked", _FLAG), ("due_ms", _LONG))
_BIRTH, _ENDED = _columns(("created_at", _TIME), ("decided_at", _TIME)), _columns(("finished_at", _TIME))
_DUE = _columns(("due_at", _TIME))

COLUMNS: dict[Kind, tuple[Column, ...]] = {
    Kind.MESSAGE: (
        *_DECIDED,
        *_LIVE,
        *_columns(("node", _INT), ("epoch", _INT), ("version", _INT)),
        *_BIRTH,
        *_DUE,
        *IN_BODY,
    ),
    Kind.HISTORY: (*_PLACE, *_DECIDED, *_END, *_BIRTH, *_ENDED, *IN_BODY),
    Kind.JOURNAL: (*_DECIDED, *_END, *_LIVE, *_PLACE, *_BIRTH, *_ENDED, *_DUE, *IN_BODY),
    Kind.ATTEMPT: _columns(
        ("id", _LONG),
        ("gid", _TEXT),
        ("kind", _TEXT),
        ("branch_id", _TEXT),
        ("target", _TEXT),
        ("at_ms", _LONG),
        ("status", _INT),
        ("latency_ms", _INT),
        ("result", _TEXT),
        ("error", _TEXT),
        ("at", _TIME),
    ),
    Kind.AUDIT_LOG: _columns(
        ("seq", _LONG),
        ("at_ms", _LONG),
        ("node", _INT),
        ("who", _TEXT),
        ("peer", _TEXT),
        ("act", _TEXT),
        ("target", _TEXT),
        ("reason", _TEXT),
        ("state_before", _TEXT),
        ("state_after", _TEXT),
        ("previous", _TEXT),
        ("hash", _TEXT),
        ("at", _TIME),
    ),
    Kind.QUEUE_ENTRY: _columns(
        ("topic", _TEXT),
        ("queue", _INT),
        ("number", _LONG),
        ("gid", _TEXT),
        ("branch", _INT),
        ("stored_ms", _LONG),
        ("stored_at", _TIME),
    ),
    Kind.QUEUE_PROGRESS: _columns(
        ("consumers", _TEXT),
        ("topic", _TEXT),
        ("queue", _INT),
        ("next_number", _LONG),
        ("changed_ms", _LONG),
        ("changed_at", _TIME),
    ),
    Kind.BARRIER: _columns(
        ("id", _LONG),
        ("trans_type", _TEXT),
        ("gid", _TEXT),
        ("branch_id", _TEXT),
        ("op", _TEXT),
        ("barrier_id", _TEXT),
        ("reason", _TEXT),
        ("prepared_ms", _LONG),
        ("created_ms", _LONG),
        ("prepared_at", _TIME),
        ("created_at", _TIME),
    ),
    Kind.LEDGER: _columns(("gid", _TEXT), ("branch_id", _TEXT)),
}
"""Known columns of each table.

A ledger's others are taken with the types of the database.
"""

GAP_ROWS = Column("gap_rows", _LONG)
"""Column of the stream with onGap=report.

It is null in a row of the table; in a row that stands for a gap, it is the number of rows that are gone, and the place
is that of the last of them.
"""
PLACES = {Kind.HISTORY: ("node", "seq"), Kind.QUEUE_ENTRY: ("topic", "queue", "number")}
"""The tables that a stream follows, and the columns of a row's place."""

MS_OF_TIME = {
    "created_at": "created_ms",
    "decided_at": "decided_ms",
    "finished_at": "finished_ms",
    "due_at": "due_ms",
    "at": "at_ms",
    "prepared_at": "prepared_ms",
    "stored_at": "stored_ms",
    "changed_at": "changed_ms",
}
"""Columns that are timestamps, and the columns of milliseconds behind them."""


def _stored(kind: Kind) -> frozenset[str]:
    made = {column.name for column in IN_BODY} | MS_OF_TIME.keys()
    return frozenset(column.name for column in COLUMNS[kind]) - made


_AS_STORED = (Kind.ATTEMPT, Kind.AUDIT_LOG, Kind.QUEUE_ENTRY, Kind.QUEUE_PROGRESS)
STORED = {kind.value: _stored(kind) for kind in (Kind.MESSAGE, Kind.HISTORY, *_AS_STORED)}
"""The columns of a coordinator's own tables that are read unchanged."""

MAY_LACK: dict[Kind, frozenset[str]] = {kind: frozenset() for kind in Kind} | {
    Kind.HISTORY: frozenset({GAP_ROWS.name}),
    Kind.QUEUE_ENTRY: frozenset({GAP_ROWS.name}),
    Kind.JOURNAL: (STORED["message"] ^ STORED["history"]) | {"finished_at", "due_at"},
}
"""Columns that a batch of the database may lack, and that are null then.

A barrier's are null in the select itself.
"""

TIME_OF_CREATION: dict[Kind, str] = {
    Kind.MESSAGE: "created_ms",
    Kind.HISTORY: "created_ms",
    Kind.JOURNAL: "created_ms",
    Kind.ATTEMPT: "at_ms",
    Kind.AUDIT_LOG: "at_ms",
    Kind.QUEUE_ENTRY: "stored_ms",
    Kind.QUEUE_PROGRESS: "changed_ms",
    Kind.BARRIER: "created_ms",
}
"""Columns that createdAfter and createdBefore compare. A ledger's is not known."""

TIME_OF_CUT: dict[Kind, str] = TIME_OF_CREATION | {Kind.HISTORY: "finished_ms"}
"""Columns that asOf compares."""

HAS_STATE = frozenset({Kind.MESSAGE, Kind.HISTORY, Kind.JOURNAL})
OF_COORDINATOR = HAS_STATE | frozenset(_AS_STORED)


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the columns for Arrow; all may be null, as in Spark's own sources.

    >>> arrow_schema(COLUMNS[Kind.LEDGER]).names
    ['gid', 'branch_id']
    """
    return pa.schema([pa.field(column.name, column.type) for column in columns])
