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
        "The database, never with a password: `env:NAME` or `file:PATH` (where the whole URL stands), or "
        "`sqlite:///file.db`, `postgresql://user@host/db`, `mysql://user@host/db`.",
    ),
    Option("table", Fits.ANY, "required; `history` for a stream", "One of the tables below."),
    Option("name", Fits.ANY, "`source`", "What errors call the database."),
    Option(
        "columns",
        Fits.ANY,
        "all but those of a body; of a ledger `gid,branch_id`",
        "Which columns, comma-separated. What is not named is not read; Spark alone would read all.",
    ),
    Option("states", Fits.ANY, "all", "Of messages: any of `prepared,submitted,succeeded,failed`."),
    Option("createdAfter", Fits.ANY, "", "Created at or after this time; of other tables, made then."),
    Option("createdBefore", Fits.ANY, "", "Created before this time."),
    Option("gidPrefix", Fits.ANY, "", "Gids that begin so."),
    Option("gids", Fits.ANY, "all", "These gids, comma-separated, at most 1000; looked up by the index of the table."),
    Option("partitions", Fits.ANY, "8", "Tasks at most (1 to 1024); small tables get fewer."),
    Option(
        "driver",
        Fits.ANY,
        "`auto`",
        "`adbc` or `python` insists on one; `auto` takes ADBC where it is installed and fits.",
    ),
    Option(
        "asOf",
        Fits.BATCH,
        "now",
        'The cut: a time that has passed, or of `history` a map from node to seq, `{"1": 4711}`.',
    ),
    Option("snapshot", Fits.BATCH, "", "Of PostgreSQL: a snapshot that another session has exported."),
    Option(
        "maxRowsPerBatch", Fits.STREAM, "no limit", "Rows a micro-batch takes at most, shared by the nodes or queues."
    ),
    Option(
        "start",
        Fits.STREAM,
        "`earliest`",
        "Where a stream without checkpoint begins: `earliest` row that stands, `latest`, the `beginning` (what is "
        "gone is a gap), or a map from node to the seq behind which it begins; of `queue_entry` from topic and queue "
        'to the number with which it begins, `{"orders/0": 4711}`.',
    ),
    Option(
        "onGap",
        Fits.STREAM,
        "`fail`",
        "Rows that were removed before they were read: `fail` ends the stream with TP-8003, `report` puts a row in "
        "their place.",
    ),
    Option("tableName", Fits.BUSINESS, "`barrier`; of a ledger required", "`table` or `schema.table` in the database."),
    Option("keyColumn", Fits.BUSINESS, "see below", "An indexed whole number or text by which the table is cut."),
    Option("gidColumn", Fits.LEDGER, "`gid`", "Where the gid stands."),
    Option("branchColumn", Fits.LEDGER, "`branch_id`", "Where the branch id stands; empty for nowhere."),
)
KNOWN = tuple(option.name for option in OPTIONS)


def names_of(*fits: Fits) -> tuple[str, ...]:
    """Return the options that fit these reads only.

    >>> names_of(Fits.LEDGER)
    ('gidColumn', 'branchColumn')
    """
    return tuple(option.name for option in OPTIONS if option.fits in fits)
