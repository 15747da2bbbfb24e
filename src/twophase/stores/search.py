"""A person's search among all messages, and the pages that an engine fills.

Promise: pages followed to their end show every message that was there when they began, final ones once. Live rows come
first, by gid, the greatest first; then history, the newest finish first. A page looks at a bounded number of rows, so
it may be short, even empty, with a position to go on from; only an empty position is the end. A message that ends
meanwhile may be shown twice, live and then final.

A position is text for the caller, and has a meaning in this module only. Of history it holds a number for each
node, as each numbers its own, so what ends later moves no page.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from twophase.core.address import TOPIC_PREFIX
from twophase.core.errors import InvalidRequest
from twophase.core.lifecycle import FINAL, STORED, State
from twophase.core.message import Branch, decode
from twophase.core.redirect import begins
from twophase.stores.rows import HistoryRow, LiveRow

EXAMINED_MAX: Final = 5_000
"""Rows of each table that one page may look at."""
EXAMINED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of bodies in which one page may look for an address.

It counts where look-ups wait for a page."""
SEQ_END: Final = 2**63 - 1
_BEYOND: Final = "\U0010ffff" * 33
"""Sorts behind every gid, which has 128 bytes at most."""
_TIME_END_MS: Final = 2**62
_PAST: Final = re.compile(r"h((?:\.\d{1,9}-\d{1,19})*)")


class Search(msgspec.Struct, frozen=True):
    """The messages that are wanted; a field that is left out does not restrict.

    Times are in milliseconds since 1970.

    `destination`: the beginning of an address that a branch is called at, with or without its scheme; of a topic's name
    or a subscriber. `check`: the same of the check address. Both end where a part of the address ends, as a redirect's
    beginning does: a stop of all that go to `http://mail:80` must not stop what goes to `http://mail:8080`.
    """

    states: frozenset[State] = STORED
    parked: bool | None = None
    gid_prefix: str = ""
    created_from_ms: int = 0
    created_before_ms: int = _TIME_END_MS
    destination: str = ""
    check: str = ""
    owner: str | None = None

    @property
    def live_states(self) -> list[State]:
        """Those of the wanted states that live rows have."""
        return sorted(self.states - FINAL)

    @property
    def past_states(self) -> list[State]:
        """The same of history; what is over is not parked."""
        return [] if self.parked else sorted(self.states & FINAL)

    @property
    def needle(self) -> bytes:
        """The text that every message with the wanted addresses contains, and few others."""
        return (self.destination or self.check).encode("utf-8", "replace")

    @property
    def gid_end(self) -> str:
        """Every gid with the prefix sorts before this."""
        return self.gid_prefix + _BEYOND

    def calls(self, body: bytes) -> bool:
        """Return True when a stored message has the wanted addresses."""
        if not self.destination and not self.check:
            return True
        try:
            message = decode(body)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return True  # it cannot be told, and a person should see it
        if self.check and not begins(message.check_url, self.check):
            return False
        urls = [url for branch in message.branches for url in _addresses(branch)]
        return not self.destination or any(begins(url, self.destination) for url in urls)


def _addresses(branch: Branch) -> tuple[str, ...]:
    """Return the addresses that a branch goes to, not those from before a redirect."""
    if branch.subscribers is None:
        return (branch.url,)
    return (branch.url, *branch.subscribers) if branch.url.startswith(TOPIC_PREFIX) else branch.subscribers


class Found(msgspec.Struct, frozen=True):
    """A page, and where the next one begins; an empty position: this was the last."""

    rows: Sequence[LiveRow | HistoryRow]
    position: str


class Live(msgspec.Struct, frozen=True):
    """The next page begins with live rows, below this gid."""

    below: str

    def __str__(self) -> str:
        return f"l{self.below}"


def behind(gid: str) -> str:
    """Return the position behind a live message."""
    return str(Live(gid))


def is_gid(position: str) -> bool:
    """Return True for a position that is the gid of a live message.

    >>> is_gid(behind("order-17")), is_gid("h.1-7")
    (True, False)
    """
    return position.startswith("l")


class Past(msgspec.Struct, frozen=True):
    """The next page begins in history, of each node below its number.

    A node without a number begins at its newest.
    """

    below: Mapping[int, int]

    def __str__(self) -> str:
        return "h" + "".join(f".{node}-{seq}" for node, seq in self.below.items())


class Page:
    """A page that an engine fills: first live rows, then history.

    Arguments:
        search: the search.
        position: the beginning; empty for the beginning.
        limit: rows at most.

    Raises:
        InvalidRequest: the position is not one that this module made.
    """

    def __init__(self, search: Search, position: str, limit: int) -> None:
        assert limit > 0, "a page has room for a row"
        self._search = search
        self._limit = limit
        self._rows: list[LiveRow | HistoryRow] = []
        self.at: Live | Past | None = _read(position) if position else Live(search.gid_end)
        if isinstance(self.at, Live) and not search.live_states:
            self._pass_to_history()
        elif isinstance(self.at, Past) and not search.past_states:
            self.at = None

    @property
    def room(self) -> int:
        """Rows that fit in still. An engine reads one more, to know whether there are any."""
        return self._limit - len(self._rows)

    def take_live(self, rows: Sequence[LiveRow], floor: str | None) -> None:
        """Take the next live rows.

        Arguments:
            rows: those that fit the question from the position down to `floor`, at most `room + 1`.
            floor: the gid of the last row that was looked at, None when there are no more.
        """
        room = self.room
        self._rows += [row for row in rows[:room] if self._search.calls(row.body)]
        if len(rows) > room:
            self.at = Live(rows[room - 1].gid)
        elif floor is not None:
            self.at = Live(floor)
        else:
            self._pass_to_history()

    def take_past(self, nodes: Iterable[PastOfNode]) -> None:
        """Take the next final messages of all nodes, the newest finish first."""
        room = self.room
        below: dict[int, int] = {}
        parts = []
        for node in nodes:
            below[node.node] = node.below
            parts.append(node.steps(room))
        chosen: list[HistoryRow] = []
        self.at = None
        for (_, number, seq), row in heapq.merge(*parts, key=_key, reverse=True):
            if row is not None and len(chosen) == room:
                self.at = Past(below)
                break
            below[number] = seq
            if row is None:
                self.at = Past(below)
                break
            chosen.append(row)
        self._rows += [row for row in chosen if self._search.calls(row.body)]

    def found(self) -> Found:
        """Return what was taken."""
        return Found(self._rows, "" if self.at is None else str(self.at))

    def _pass_to_history(self) -> None:
        self.at = Past({}) if self._search.past_states else None


class PastOfNode(msgspec.Struct, frozen=True):
    """The rows of one node's history that match, the newest first.

    `rows` are below number `below`. `floor`: finish time and number of the last row that was looked at; None when the
    node has no more.
    """

    node: int
    below: int
    rows: Sequence[HistoryRow]
    floor: tuple[int, int] | None

    def steps(self, room: int) -> Iterator[tuple[tuple[int, int, int], HistoryRow | None]]:
        """Yield each row with its position among those of all nodes.

        It ends with None, where more would have to be read.
        """
        for row in self.rows:
            yield (row.finished_ms, row.node, row.seq), row
        if self.floor is not None and len(self.rows) <= room:
            finished_ms, seq = self.floor
            yield (finished_ms, self.node, seq), None


def _key(step: tuple[tuple[int, int, int], HistoryRow | None]) -> tuple[int, int, int]:
    return step[0]


def _read(position: str) -> Live | Past:
    if position.startswith("l"):
        try:
            position.encode()
        except UnicodeEncodeError:
            raise _unknown(position) from None
        return Live(position[1:])
    match = _PAST.fullmatch(position)
    if match is None:
        raise _unknown(position)
    pairs = (part.split("-") for part in match[1].split(".")[1:])
    below = {int(node): int(seq) for node, seq in pairs}
    if any(seq > SEQ_END or node > 2**31 - 1 for node, seq in below.items()):
        raise _unknown(position)
    return Past(below)


def _unknown(position: str) -> InvalidRequest:
    return InvalidRequest(
        f"position: {position[:45]!r} is not the end of a page; leave it out to begin.",
    )
