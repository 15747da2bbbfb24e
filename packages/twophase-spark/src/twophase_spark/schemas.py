"""The inputs of an audit, as columns of Spark and of Arrow.

Plain `long` milliseconds and `int` states instead of timestamps and names: the comparison uses the databases' own
values, and the shuffle stays small.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

JOURNAL = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("gid", pa.string(), nullable=False),
        pa.field("state", pa.int32(), nullable=False),
        pa.field("created_ms", pa.int64(), nullable=False),
        pa.field("decided_ms", pa.int64()),
        pa.field("finished_ms", pa.int64()),
        pa.field("decided_by", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("attempts", pa.int32()),
        pa.field("parked", pa.bool_()),
        pa.field("delay_ms", pa.int64()),
        pa.field("checked", pa.bool_()),
        pa.field("producer", pa.string()),
        pa.field("identity", pa.string()),
        pa.field("check_url", pa.string()),
        pa.field("branches", pa.list_(pa.struct([("branch_id", pa.string()), ("url", pa.string())]))),
        pa.field("queued", pa.list_(pa.int32())),
        pa.field("entries", pa.list_(pa.int32())),
        pa.field("entries_cleaned", pa.bool_()),
    ]
)
"""Messages of a coordinator, live and final.

Entries of queues that have no message are rows, too, whose state is `ABSENT`. `source` is the coordinator.

`checked`: there is a check address (null: the body cannot be read); `producer`: its host, empty for none; `identity`:
of the producer's database, as it stands in that address; `check_url`: the address without its query; `branches`: the
calls, of an expanded topic one for each subscriber; `queued`: the places in the message of those that go to queues;
`entries`: the places for which an entry stands, one for each entry; `entries_cleaned`: some may have been removed.
"""

PRODUCER = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("gid", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("prepared_ms", pa.int64()),
    ]
)
"""Producer rows of barrier tables.

Their reason is `msg` (committed), `rollback`, or `BRANCHES_UNKNOWN`.
"""

BRANCHES_UNKNOWN = "msg without branches"
"""Reason of a committed row whose body is empty.

The branches added in its transaction were not written.
"""

EFFECT = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("gid", pa.string(), nullable=False),
        pa.field("branch_id", pa.string()),
    ]
)
"""One effect of a branch in a service: its barrier row, or its ledger row."""


DIFFERENCE = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("gid", pa.string(), nullable=False),
        pa.field("branch_id", pa.string()),
        pa.field("agrees", pa.string()),
        pa.field("differs", pa.bool_()),
    ]
)
"""Effects that do not agree with their payload by the ledger's condition `agrees`.

`differs` is true, or null where the condition has no answer. No value of payload or row is here.
"""


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the same columns for Spark.

    >>> spark_schema(EFFECT).simpleString()
    'struct<source:string,gid:string,branch_id:string>'
    """
    return from_arrow_schema(schema)
