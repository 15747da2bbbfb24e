"""The store's statements, each in its own file under `sql/`.

One statement takes many rows at once.

A flush is as few statements as there are kinds of change in it, not as many as there are changes: around each
statement the writer's thread gives the interpreter's lock away and must win it back from the event loop. With a
busy loop, a hundred messages written one by one took five times as long as in one statement.
"""

from __future__ import annotations

import importlib.resources
import re
import sqlite3
from collections.abc import Sequence
from typing import Final

Value = str | int | bytes | None
Row = tuple[Value, ...]

ROWS_MAX: Final = 1024
"""Rows a statement; nine values a row stay far below SQLite's 32 766 parameters."""

NODE: Final = 1
"""A file has one node: the process that holds its lock."""

_FOLDER = importlib.resources.files("twophase.stores.sqlite") / "sql"
_ROW = re.compile(r"\(values (\(\?(?:, \?)*\))\)")
_CONSTANT = re.compile(r"\?(\d)")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read(name: str) -> str:
    """Return the statement in `sql/<name>.sql`, without its comment."""
    return _COMMENT.sub("", (_FOLDER / f"{name}.sql").read_text())


class RowsStatement:
    """A statement whose `(values (?, …))` takes any number of rows up to `ROWS_MAX`.

    The number is rounded up to a power of two, so that few texts are ever prepared; the rows too many are nulls, which
    each statement leaves out.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._one_row = read(name)
        match = _ROW.search(self._one_row)
        assert match is not None, f"{name}.sql has a row of parameters"
        self._row = match[1]
        self._width = self._row.count("?")
        self._constants = max((int(number) for number in _CONSTANT.findall(self._one_row)), default=0)
        self._texts: dict[int, str] = {}

    def text(self, size: int) -> str:
        """Build the statement for `size` rows, which is kept."""
        rows = ", ".join([self._row] * size)
        text = self._texts[size] = self._one_row.replace(self._row, rows, 1)
        return text

    def run(self, connection: sqlite3.Connection, constants: Row, rows: Sequence[Row]) -> sqlite3.Cursor:
        """Execute for `rows`; `constants` are ?1, ?2, … as far as the text has them."""
        assert 0 < len(rows) <= ROWS_MAX, "some rows, and not too many"
        size = 1 << (len(rows) - 1).bit_length()
        parameters: list[Value] = list(constants[: self._constants])
        for row in rows:
            parameters += row
        parameters += [None] * ((size - len(rows)) * self._width)
        return connection.execute(self._texts.get(size) or self.text(size), parameters)


INSERT: Final = RowsStatement("insert")
BORN: Final = RowsStatement("born")
DECIDE: Final = RowsStatement("decide")
DECIDE_EARLY: Final = RowsStatement("decide_early")
RESCHEDULE: Final = RowsStatement("reschedule")
PARK: Final = RowsStatement("park")
REDIRECT: Final = RowsStatement("redirect")
FINISH: Final = RowsStatement("finish")
ATTEMPT: Final = RowsStatement("attempt")
TAKEN: Final = RowsStatement("taken")
UNMATCHED: Final = RowsStatement("unmatched")
COMPLETE: Final = RowsStatement("complete")
QUEUE_APPEND: Final = RowsStatement("queue_append")
QUEUE_REPORT: Final = RowsStatement("queue_report")
FORGET_HISTORY: Final = RowsStatement("forget_history")
FORGET_ATTEMPTS: Final = RowsStatement("forget_attempts")

FENCE: Final = read("fence")
SLOT: Final = read("slot")
CORRECT_SEQ: Final = read("correct_seq")
TAKE_SLOT: Final = read("take_slot")
BUMP_EPOCH: Final = read("bump_epoch")
RAISE_HORIZON: Final = read("raise_horizon")
NOTE_TAKEOVER: Final = read("note_takeover")

GET: Final = read("get")
DUE: Final = read("due")
ATTEMPTS: Final = read("attempts")
OVERVIEW: Final = read("overview")
NODES: Final = read("nodes")
WAITING_BY_OWNER: Final = read("waiting_by_owner")
SIZE: Final = read("size")
HORIZON: Final = read("horizon")
OLDEST_HISTORY: Final = read("oldest_history")
OLDEST_ATTEMPTS: Final = read("oldest_attempts")
OLDEST_UNDECIDED: Final = read("oldest_undecided")
LATER: Final = read("later")
SEARCH_LIVE: Final = read("search_live")
SEARCH_LIVE_FLOOR: Final = read("search_live_floor")
SEARCH_LIVE_SIZES: Final = read("search_live_sizes")
SEARCH_HISTORY: Final = read("search_history")
SEARCH_HISTORY_FLOOR: Final = read("search_history_floor")
SEARCH_HISTORY_SIZES: Final = read("search_history_sizes")

AUDIT_APPEND: Final = read("audit_append")
AUDIT_ADVANCE: Final = read("audit_advance")
AUDIT_ANCHOR: Final = read("audit_anchor")
AUDIT_FORGET: Final = read("audit_forget")
AUDIT_OLDEST: Final = read("audit_oldest")
AUDIT_HEAD: Final = read("audit_head")
AUDIT_CHAIN: Final = read("audit_chain")
AUDIT_SEARCH: Final = read("audit_search")

TOKENS: Final = read("tokens")
BUMP_TOKENS: Final = read("bump_tokens")
PUT_TOKEN: Final = read("put_token")
REMOVE_TOKEN: Final = read("remove_token")

TOPICS: Final = read("topics")
BUMP_TOPICS: Final = read("bump_topics")
PUT_TOPIC: Final = read("put_topic")
REMOVE_TOPIC: Final = read("remove_topic")

QUEUE_ADVANCE: Final = read("queue_advance")
QUEUE_NEXT: Final = read("queue_next")
QUEUE_DEFINE: Final = read("queue_define")
QUEUE_DEFINITIONS: Final = read("queue_definitions")
QUEUE_PAGE: Final = read("queue_page")
QUEUE_ENTRIES: Final = read("queue_entries")
QUEUE_ENDS: Final = read("queue_ends")
QUEUE_PLACE: Final = read("queue_place")
QUEUE_PROGRESS: Final = read("queue_progress")
QUEUE_COUNTERS: Final = read("queue_counters")
QUEUE_FORGET: Final = read("queue_forget")
QUEUE_HORIZON: Final = read("queue_horizon")
QUEUE_OLD: Final = read("queue_old")
QUEUE_ENDS_OF: Final = read("queue_ends_of")
QUEUE_FIRST: Final = read("queue_first")
QUEUE_WEIGHTS: Final = read("queue_weights")
QUEUE_READERS: Final = read("queue_readers")
QUEUE_KEYS: Final = read("queue_keys")
QUEUE_REDEFINE: Final = read("queue_redefine")
QUEUE_UNDEFINE: Final = read("queue_undefine")
QUEUE_UNREAD: Final = read("queue_unread")
