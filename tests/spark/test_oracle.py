"""DuckDB agrees with every case's expected verdict, in both of its ways.

Its SQL is written apart from the audit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.cases import ALL, tables_of
from tests.spark.duckdb_audit import Ask, by_oracle, by_twin, opened
from twophase_spark.rules.taxonomy import Flag


@pytest.mark.parametrize("ask", [by_oracle, by_twin])
def test_duckdb_counts_the_cases_as_they_are_meant(tmp_path: Path, ask: Ask) -> None:
    for name, table in tables_of(ALL).items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part.parquet")

    with opened(tmp_path, memory_mb=512) as connection:
        counts = [ask(connection) for _ in range(2)]

    expected = Counter(flag for case in ALL for flag in case.flags)
    assert counts == [{"messages": len(ALL)} | {flag.value: expected[flag.value] for flag in Flag}] * 2
