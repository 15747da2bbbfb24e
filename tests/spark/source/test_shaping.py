"""A database's answer takes the shape that Spark expects, or is refused.

No column is null because it got lost.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from twophase.core.errors import CannotRead
from twophase_spark.source.schema.shaping import shape
from twophase_spark.source.schema.tables import MAY_LACK, Kind

TARGET = pa.schema([("gid", pa.string()), ("seq", pa.int64())])
ANSWERED = pa.RecordBatch.from_pydict({"gid": ["g"], "Seq": [7]})


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.JOURNAL])
def test_a_column_that_is_not_there_is_refused(kind: Kind) -> None:
    with pytest.raises(CannotRead, match="Column seq was asked for; the database answered Seq, gid"):
        shape(ANSWERED, TARGET, MAY_LACK[kind])


def test_a_live_row_of_a_journal_has_no_position_in_history() -> None:
    assert shape(ANSWERED, TARGET, MAY_LACK[Kind.JOURNAL]).to_pylist() == [{"gid": "g", "seq": None}]
