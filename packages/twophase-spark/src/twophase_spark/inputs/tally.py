"""The tally of a table's older rows: proof that none came later among them.

Keys grow in the order of inserts, and a transaction with a smaller key may commit later. So an audit reads rows again
from a point that lay some minutes back (`increment`). Until there is such a point, it compares tallies: where number
and sum of the keys up to one key are what they were before the last run read them, that run saw every such row.

Invariant: a tally is made before the rows are read. A row that commits between is read and not in the tally; then the
tallies differ, and the rows are read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from twophase_spark.inputs.found_again import name_of
from twophase_spark.locations import Role
from twophase_spark.readers.database import open_database
from twophase_spark.readers.probe import Bound, Source

KEYS_LEFT_OUT = 10_000
"""Newest keys that no tally covers.

Transactions that are open now have theirs among them, as a rule.
"""
_MODULUS = 1_000_003
"""Prime modulo which keys are added up.

So the sum of any keys is a 64-bit integer.
"""


class Tally(msgspec.Struct, frozen=True):
    """The number of rows with keys up to `key`, and the sum of their keys."""

    key: int
    rows: int
    sum: int


def tallies_of(sources: Sequence[Source]) -> dict[str, Tally]:
    """Return the tally of every barrier and ledger with a key, by `role name`.

    It is to be made before rows are read.
    """
    return {name_of(source): _tally(source, bound.last - KEYS_LEFT_OUT) for source, bound in _keyed(sources)}


def standing_keys(sources: Sequence[Source], tallies: Mapping[str, Tally]) -> dict[str, int]:
    """Return the keys up to which no row came since, by `role name`.

    Arguments:
        sources: as they were found just now.
        tallies: those of the last run.
    """
    before = [(source, tallies[name_of(source)]) for source, _ in _keyed(sources) if name_of(source) in tallies]
    return {name_of(source): tally.key for source, tally in before if _tally(source, tally.key) == tally}


def _tally(source: Source, key: int) -> Tally:
    column, table = source.bounds[0].key, source.location.table
    sql = f"select count(*), coalesce(sum({column} % {_MODULUS}), 0) from {table} where {column} <= ?"  # noqa: S608 -- validated
    with open_database(source.location) as database:
        [(rows, total)] = database.rows(sql.replace("%", "%%") if source.location.engine != "sqlite" else sql, (key,))
    return Tally(key, int(rows), int(total))


def _keyed(sources: Sequence[Source]) -> list[tuple[Source, Bound]]:
    return [
        (source, bound)
        for source in sources
        if source.location.role is not Role.COORDINATOR
        for bound in source.bounds
        if bound.last > KEYS_LEFT_OUT
    ]
