"""The columns of the lake's files: those of the source, and history's stored body.

So nothing is lost: the body holds what no column shows, payloads and headers. So the lake holds the secrets that the
store holds, and its folders are readable by their owner only.
"""

from __future__ import annotations

import pyarrow as pa

from twophase_spark.source.schema.sql import BODY
from twophase_spark.source.schema.tables import COLUMNS, MS_OF_TIME, Kind, arrow_schema

TABLES = (Kind.HISTORY, Kind.ATTEMPT, Kind.AUDIT_LOG, Kind.QUEUE_ENTRY)


def shown_of(kind: Kind, *, payloads: bool = False) -> pa.Schema:
    """Return the columns that a query shows.

    Timestamps are not among them: their milliseconds are.
    """
    left_out = MS_OF_TIME.keys() | (set() if payloads else {"payloads"})
    return arrow_schema(tuple(column for column in COLUMNS[kind] if column.name not in left_out))


def target_of(kind: Kind) -> pa.Schema:
    """Return the columns of a file.

    >>> target_of(Kind.HISTORY).names[-1], "payloads" in target_of(Kind.HISTORY).names
    ('body', False)
    """
    schema = shown_of(kind)
    return schema.append(pa.field(BODY, pa.binary())) if kind is Kind.HISTORY else schema
