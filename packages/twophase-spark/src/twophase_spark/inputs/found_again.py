"""Rows of the last audit that an audit finds again: its databases are the same.

A database that was restored from a backup, or exchanged behind its address, ends before the verified point only until
it has grown beyond it. So a state keeps the gid of each table's last row, and the identities of barrier tables. Another
gid at the same key is another row: no barrier, no history and no growing key of a ledger gives a number twice. A row
that is gone proves nothing, because rows are cleaned.

History has no gaps when it is written. So a stretch that has fewer rows than numbers lacks messages that were cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from twophase_spark.locations import Role
from twophase_spark.readers.database import open_database
from twophase_spark.readers.probe import Bound, Source, gid_at


class End(msgspec.Struct, frozen=True):
    """The last row of a table: `gid` stands at `at` of its `key`."""

    key: str
    at: int
    gid: str


class FoundAgain(msgspec.Struct, frozen=True):
    """Rows that were looked up.

    `others`: by `role name`, the place at which another row stands than before; `rows`: by coordinator and node, the
    rows of history behind the verified point, where some of it was cleaned.
    """

    others: dict[str, str] = {}
    rows: dict[str, dict[int, int]] = {}


Ends = Mapping[str, Mapping[int, End]]
"""By `role name` and node; the node is 0 for a table without nodes."""


def ends_of(sources: Sequence[Source]) -> dict[str, dict[int, End]]:
    """Return the last rows of these sources' tables."""
    return {
        name_of(source): {bound.node or 0: End(bound.key, bound.last, bound.gid) for bound in found}
        for source in sources
        if (found := [bound for bound in source.bounds if bound.gid])
    }


def find_again(sources: Sequence[Source], ends: Ends, verified: Mapping[str, Mapping[int, int]]) -> FoundAgain:
    """Look up the last rows of an earlier run, and count what came behind them.

    Arguments:
        sources: as they were found just now.
        ends: the last rows at that time.
        verified: by coordinator and node, the seq up to which history was read.

    Raises:
        CannotRead: a database cannot be read.
    """
    others = {name_of(source): place for source in sources if (place := _other_row(source, ends))}
    cleaned = [one for one in sources if one.location.role is Role.COORDINATOR and one.horizon_ms]
    names = [(source, source.location.name) for source in cleaned]
    rows = {name: _rows_behind(source, verified[name]) for source, name in names if name in verified}
    return FoundAgain(others, rows)


def name_of(source: Source) -> str:
    """Return the name of a source in the state."""
    return f"{source.location.role} {source.location.name}"


def _other_row(source: Source, ends: Ends) -> str:
    """Return the place of a row that is another one now; empty for none."""
    known = ends.get(name_of(source), {})
    pairs = [(bound, known[bound.node or 0]) for bound in source.bounds if (bound.node or 0) in known]
    looked_up = [(bound, end) for bound, end in pairs if bound.key == end.key and bound.last >= end.at]
    if not looked_up:
        return ""
    with open_database(source.location) as database:
        for bound, end in looked_up:
            table = source.location.table or "history"
            column = source.location.gid_column
            found = gid_at(database, table, end.key, end.at, gid=column, node=bound.node)
            if found and found != end.gid:
                return f"{end.key} {end.at}" + ("" if bound.node is None else f" of node {bound.node}")
    return ""


def _rows_behind(source: Source, verified: Mapping[int, int]) -> dict[int, int]:
    sql = "select count(*) from history where node = ? and seq > ? and seq <= ?"

    def asked(bound: Bound) -> tuple[int, int, int]:
        node = bound.node or 0
        return node, verified.get(node, 0), bound.last

    with open_database(source.location) as database:
        return {bound.node or 0: int(database.rows(sql, asked(bound))[0][0]) for bound in source.bounds}
