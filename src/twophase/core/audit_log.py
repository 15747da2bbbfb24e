"""The audit log: a row for each operator's act, chained by hash.

Promise: a row stands in the transaction of its act, so an act and its row are both there or neither is. Each row's hash
covers its own columns and the hash of the row before, so a row that was changed, removed or put in between is found.
Both engines compute the same hash: SQLite's here, PostgreSQL's in `stores/postgres/audit.sql`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from twophase.core.printable import printable

NO_HASH: Final = "0" * 64
"""The hash before the first row."""
NAME_CHARACTERS_MAX: Final = 200
TEXT_CHARACTERS_MAX: Final = 2_000
_COMMON_CHARACTERS: Final = 500
"""Characters before the first difference of two long states that stay."""
AUDIT_LOOKED_AT_MAX: Final = 10_000
"""Rows that one search looks at."""


class Actor(msgspec.Struct, frozen=True):
    """A client that acts: the name of its token or certificate, and its address.

    Each may be empty.
    """

    who: str = ""
    peer: str = ""


NOBODY: Final = Actor()


class AuditEntry(msgspec.Struct, frozen=True):
    """An act, before the store has numbered it.

    Arguments:
        who: the name of the token, or of the certificate; empty for a client without one. Of a change of tokens, the
            user who owns their file.
        peer: the client's address, without its port.
        act: the kind of act, such as `stop`.
        target: the gid, topic, route or token that it is about.
        reason: the operator's own words.
        before, after: the state that the act found, and the one it left.
    """

    who: str
    peer: str
    act: str
    target: str
    reason: str = ""
    before: str = ""
    after: str = ""

    def bounded(self) -> AuditEntry:
        r"""Return the entry in text that every database takes, within the bounds.

        >>> AuditEntry("eve", "::1", "stop", "order-17", "a\nb").bounded().reason
        'a\\nb'
        """
        short = (_text(value, NAME_CHARACTERS_MAX) for value in (self.who, self.peer, self.act))
        states = _told_apart(self.before, self.after)
        long = (_text(value, TEXT_CHARACTERS_MAX) for value in (self.target, self.reason, *states))
        return AuditEntry(*short, *long)


class AuditRow(msgspec.Struct, frozen=True):
    """A row of the audit log.

    `seq` grows by one a row, over all nodes. `at_ms` is the store's clock, `node` the node that wrote it. `previous` is
    the hash of the row before.
    """

    seq: int
    at_ms: int
    node: int
    who: str
    peer: str
    act: str
    target: str
    reason: str
    before: str
    after: str
    previous: str
    hash: str


class AuditHead(msgspec.Struct, frozen=True):
    """The two ends of the chain.

    `seq` and `hash` are the last row's. `anchor_seq` and `anchor_hash` are those of the last row that cleaning has
    removed: the chain begins behind it.
    """

    seq: int = 0
    hash: str = NO_HASH
    anchor_seq: int = 0
    anchor_hash: str = NO_HASH


class TokensSeen(msgspec.Struct, frozen=True):
    """The tokens that the store has noted: what each name may do.

    `revision` grows by one with every noticed change.
    """

    revision: int
    by_name: dict[str, str]


class AuditSearch(msgspec.Struct, frozen=True):
    """The rows that a person looks for; an empty text is any.

    `since_ms`: written at or after this time.
    """

    target: str = ""
    who: str = ""
    act: str = ""
    since_ms: int = 0


class AuditPage(msgspec.Struct, frozen=True):
    """A page of a search, and the position of the next one; 0 at the end."""

    rows: tuple[AuditRow, ...]
    position: int


def page_bounds(position: int, head_seq: int) -> tuple[int, int]:
    """Return the numbers of a page: it lies before the first, down to the second.

    >>> page_bounds(0, 17), page_bounds(20_001, 30_000)
    ((18, 0), (20001, 10001))
    """
    before = min(position or head_seq + 1, head_seq + 1)
    return before, max(0, before - AUDIT_LOOKED_AT_MAX)


def page_of(rows: Iterable[AuditRow], limit: int, least: int, anchor_seq: int) -> AuditPage:
    """Return a page of the rows that a search found among those from `least` on."""
    found = tuple(rows)
    position = found[-1].seq if len(found) == limit else least
    return AuditPage(found, position if position > anchor_seq + 1 else 0)


def old_until(rows: Iterable[tuple[int, int]], before_ms: int, through: int | None = None) -> int:
    """Return the last number of the beginning that is older than a time; 0 for none.

    `rows` are (seq, at_ms) in the order of the chain; those behind `through` stay. So does what stands behind a younger
    row, so that the chain keeps one beginning.

    >>> old_until([(4, 10), (5, 20), (6, 15)], 16)
    4
    """
    last = 0
    for seq, at_ms in rows:
        if at_ms >= before_ms or (through is not None and seq > through):
            break
        last = seq
    return last


def chained(head: AuditHead, at_ms: int, node: int, entries: Iterable[AuditEntry]) -> list[AuditRow]:
    """Return the rows of entries that follow the head."""
    rows: list[AuditRow] = []
    seq, previous = head.seq, head.hash
    for entry in entries:
        seq += 1
        texts = (entry.who, entry.peer, entry.act, entry.target, entry.reason, entry.before, entry.after)
        row_hash = hash_of(previous, seq, at_ms, node, texts)
        rows.append(AuditRow(seq, at_ms, node, *texts, previous, row_hash))
        previous = row_hash
    return rows


def hash_of(previous: str, seq: int, at_ms: int, node: int, texts: Iterable[str]) -> str:
    """Return the SHA-256 of a row.

    It covers each value as its length in bytes, a colon and its UTF-8 text. The lengths keep two rows from having one
    encoding.

    >>> hash_of(NO_HASH, 1, 0, 1, ("eve", "::1", "stop", "order-17", "", "", ""))[:16]
    '3b6e5f31059573c2'
    """
    parts = [value.encode() for value in (previous, str(seq), str(at_ms), str(node), *texts)]
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()


def recomputed(row: AuditRow) -> str:
    """Return the hash that a row should have, from its own columns."""
    texts = (row.who, row.peer, row.act, row.target, row.reason, row.before, row.after)
    return hash_of(row.previous, row.seq, row.at_ms, row.node, texts)


def _told_apart(before: str, after: str) -> tuple[str, str]:
    """Return two states of which the bound leaves what differs.

    A long beginning that both have is left out, so that no change stands behind the end of both.

    >>> [text[:9] for text in _told_apart("a" * 3_000 + "; old", "a" * 3_000 + "; new")]
    ['…aaaaaaaa', '…aaaaaaaa']
    >>> _told_apart("old", "new")
    ('old', 'new')
    """
    if max(len(before), len(after)) <= TEXT_CHARACTERS_MAX:
        return before, after
    differs = (number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    common = next(differs, min(len(before), len(after))) - _COMMON_CHARACTERS
    return (f"…{before[common:]}", f"…{after[common:]}") if common > 0 else (before, after)


def _text(value: str, characters_max: int) -> str:
    clean = printable(value, kept="")
    return clean if len(clean) <= characters_max else clean[: characters_max - 1] + "…"
