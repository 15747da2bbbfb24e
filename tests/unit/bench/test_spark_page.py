"""`make bench-spark` writes a page of its results.

It names the figures, the machine, the command that repeats them, and what failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.spark import Audit, Engine, Part, main, page


def test_the_page_has_figures_and_their_commands() -> None:
    engines = (
        Engine("Spark", (50.0, 40.0, 45.04), (80.0, 70.0, 75.0), 4_400, 890, 0),
        Engine("DuckDB, twin", (8.0,), (15.0,), 3_000, None, None),
    )
    audit = Part("audit", "python -m tests.spark.bench", 0.1, "Spark 50.0 s\n", audit=Audit(10_000_000, engines))
    sink = Part("sink", "python -m tests.spark.sink.bench", 3.5, "no\n", failure="Traceback: no server")

    text = "\n".join(page([audit, sink]))

    assert "10,000,000 messages a side." in text
    assert "| Spark | 40.0 / **45.0** / 50.0 | 75.0 | 4,400 | 890 | 0 |" in text
    assert "| DuckDB, twin | 8.0 / **8.0** / 8.0 | 15.0 | 3,000 | – | – |" in text
    assert "$ python -m tests.spark.bench\nSpark 50.0 s\n```" in text
    assert "Load average before: 3.5." in text
    assert "**Not measured, or not right**" in text
    assert "Traceback: no server" in text
    assert "pyspark 4." in text


def test_a_part_that_fails_does_not_lose_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "page.md"
    monkeypatch.setattr("benchmarks.spark.sys.executable", "/bin/false")
    monkeypatch.setattr(sys, "argv", ["spark", "--only", "sink", "--page", str(written)])

    assert main() == 1
    assert "## Publishing" in written.read_text()
