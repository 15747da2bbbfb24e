"""DuckDB agrees with every case's expected verdict.

Its SQL is written apart from the audit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from tests.spark.bench import ask_duckdb
from tests.spark.cases import ALL, tables_of
from twophase_spark.rules.taxonomy import Flag


def test_the_oracle_counts_the_cases_as_they_are_meant(tmp_path: Path) -> None:
    for name, table in tables_of(ALL).items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part.parquet")

    counts = ask_duckdb(tmp_path, memory_mb=512)

    expected = Counter(flag for case in ALL for flag in case.flags)
    assert counts == {"messages": len(ALL)} | {flag.value: expected[flag.value] for flag in Flag}
