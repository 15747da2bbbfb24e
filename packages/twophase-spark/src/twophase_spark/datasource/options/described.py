"""The options of the source in words, for the reference page and for errors.

They also show which read an option fits.
"""

from __future__ import annotations

import enum

import msgspec


class Fits(enum.StrEnum):
    """The reads that an option is for."""

    ANY = "any"
    BATCH = "read"
    STREAM = "readStream"
    BUSINESS = "barrier, ledger"
    LEDGER = "ledger"


class Option(msgspec.Struct, frozen=True):
    """One option: the reads that take it, its default, and its effect."""

    name: str
    fits: Fits
    default: str
    meaning: str


OPTIONS = (
    Option(
        "url",
        Fits.ANY,
        "required",
        "The database, never with a password: `env:NAME` or `file:PATH` (with the whole URL), or "
        "`sqlite:///file.db`, `postgresql://user@host/db`, `mysql://user@host/db`.",
    ),
    Option("table", Fits.ANY, "required; `history` for a stream", "One of the tables below."),
    Option("name", Fits.ANY, "`source`", "The database's name in errors."),
    Option(
        "columns",
        Fits.ANY,
        "all except those of a body; for a ledger `gid,branch_id`",
        "The columns, comma-separated. Other columns are not read; Spark alone would read all.",
    ),
    Option("states", Fits.ANY, "all", "For messages: any of `prepared,submitted,succeeded,failed`."),
    Option("createdAfter", Fits.ANY, "", "Only rows created at or after this time."),
    Option("createdBefore", Fits.ANY, "", "Only rows created before this time."),
    Option("gidPrefix", Fits.ANY, "", "Only gids with this beginning."),
    Option("gids", Fits.ANY, "all", "Only these gids, comma-separated, at most 1000; looked up by the table's index."),
    Option("partitions", Fits.ANY, "8", "Most tasks (1 to 1024); small tables get fewer."),
    Option(
        "driver",
        Fits.ANY,
        "`auto`",
        "`adbc` or `python` forces one; `auto` uses ADBC if it is installed and fits.",
    ),
    Option(
        "asOf",
        Fits.BATCH,
        "now",
        'The cut: a past time, or for `history` a map from node to seq, `{"1": 4711}`.',
    ),
    Option("snapshot", Fits.BATCH, "", "For PostgreSQL: a snapshot that another session has exported."),
    Option("maxRowsPerBatch", Fits.STREAM, "no limit", "Most rows of a micro-batch, shared by the nodes or queues."),
    Option(
        "start",
        Fits.STREAM,
        "`earliest`",
        "Where a stream without checkpoint begins: at the `earliest` existing row, the `latest`, the `beginning` "
        "(removed rows are a gap), or a map from node to the last seq before it; for `queue_entry` a map from topic "
        'and queue to its first number, `{"orders/0": 4711}`.',
    ),
    Option(
        "onGap",
        Fits.STREAM,
        "`fail`",
        "Rows that were removed before they were read: `fail` ends the stream with TP-8003, `report` replaces them by "
        "a row.",
    ),
    Option(
        "tableName", Fits.BUSINESS, "`barrier`; required for a ledger", "`table` or `schema.table` in the database."
    ),
    Option("keyColumn", Fits.BUSINESS, "see below", "An indexed integer or text by which the table is split."),
    Option("gidColumn", Fits.LEDGER, "`gid`", "The column with the gid."),
    Option(
        "branchColumn",
        Fits.LEDGER,
        "`branch_id`",
        "The column with the branch id; empty if the ledger has no such column.",
    ),
)
KNOWN = tuple(option.name for option in OPTIONS)


def names_of(*fits: Fits) -> tuple[str, ...]:
    """Return the options that fit these reads only.

    >>> names_of(Fits.LEDGER)
    ('gidColumn', 'branchColumn')
    """
    return tuple(option.name for option in OPTIONS if option.fits in fits)
