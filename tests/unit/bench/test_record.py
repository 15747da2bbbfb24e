"""The page is completed part by part.

The figures of one run stay when another run measures other parts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import page, record, standard
from benchmarks.failure import BenchmarkFailed
from benchmarks.parts import Found, Row
from tests.unit.bench.test_page import part
from twophase.core.errors import ConfigurationError

_SDK = Row("async", "µs", (100.0,), 120.0)


def _found(tmp_path: Path) -> record.Record:
    return record.load(page.record_file(tmp_path))


def _text(tmp_path: Path) -> str:
    return (tmp_path / "benchmarks.md").read_text()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Found | BenchmarkFailed]:
    """Replace each part's measurement with a result that takes no time."""
    results: dict[str, Found | BenchmarkFailed] = {}

    def measure(name: str) -> Found:
        found = results[name]
        if isinstance(found, BenchmarkFailed):
            raise found
        return found

    monkeypatch.setattr(standard, "PARTS", {"sdk": lambda _: measure("sdk"), "start": lambda _: measure("start")})
    return results


def test_a_part_that_is_measured_alone_leaves_the_others_as_they_were(
    tmp_path: Path, measured: dict[str, Found]
) -> None:
    earlier = part(Row("ready", "s", (0.9,), 1.0))
    page.put(tmp_path, "start", earlier, {"start-plot.svg": "<svg/>"})
    page.put(tmp_path, "sdk", part(Row("async", "µs", (900.0,))), {})
    measured["sdk"] = Found("played 3 times", [_SDK], commands=["python -m benchmarks.load --scenario sdk"])

    assert command.measure(tmp_path, standard.FULL, ["sdk"]) == []

    found = _found(tmp_path)
    assert (found.parts["start"].rows, found.parts["start"].measured) == (earlier.rows, earlier.measured)
    assert found.parts["start"].plots == ["start-plot.svg"]
    assert (found.parts["sdk"].rows, found.parts["sdk"].how) == ([_SDK], "played 3 times")
    assert found.parts["sdk"].measured > earlier.measured
    assert "| ready | **0.9** (one run) | s | ≤ 1 | yes |" in _text(tmp_path)
    assert "| async | **100** (one run) | µs | ≤ 120 | yes |" in _text(tmp_path)
    assert "900" not in _text(tmp_path)
    assert f"Measured {earlier.measured}: 3 rounds of 5 s, 74 s in all." in _text(tmp_path)


def test_a_quick_look_instead_of_a_longer_measurement_says_so(tmp_path: Path, measured: dict[str, Found]) -> None:
    page.put(tmp_path, "sdk", part(_SDK), {})
    measured["sdk"] = Found("played once", [_SDK])
    command.measure(tmp_path, standard.QUICK, ["sdk"])
    command.measure(tmp_path, standard.QUICK, ["sdk"])

    assert "**A quick look" in _text(tmp_path)
    assert "took the place of a longer measurement (full, 2026-11-22 01:15 UTC)" in _text(tmp_path)

    command.measure(tmp_path, standard.LONG, ["sdk"])

    assert "quick look" not in _text(tmp_path)


def test_a_first_quick_look_replaces_nothing(tmp_path: Path, measured: dict[str, Found]) -> None:
    measured["sdk"] = Found("played once", [_SDK])
    command.measure(tmp_path, standard.QUICK, ["sdk"])

    assert "**A quick look" in _text(tmp_path)
    assert "took the place" not in _text(tmp_path)


def test_a_part_that_fails_is_reported_and_the_others_are_measured(
    tmp_path: Path, measured: dict[str, Found | BenchmarkFailed]
) -> None:
    measured["sdk"] = Found("played once", [_SDK])
    measured["start"] = BenchmarkFailed("the server did not start")

    assert command.measure(tmp_path, standard.QUICK, []) == ["start"]

    assert "**Not measured**: the server did not start" in _text(tmp_path)
    assert "| async | **100** (one run) | µs | ≤ 120 | yes |" in _text(tmp_path)


def test_a_part_that_fails_keeps_its_older_figures_with_their_date(
    tmp_path: Path, measured: dict[str, Found | BenchmarkFailed]
) -> None:
    page.put(tmp_path, "sdk", part(_SDK), {})
    measured["sdk"] = BenchmarkFailed("no room")
    command.measure(tmp_path, standard.FULL, ["sdk"])

    assert "**Not measured**: no room (2" in _text(tmp_path)
    assert "Measured 2026-11-22 01:15 UTC" in _text(tmp_path)
    assert "| async | **100** (one run) | µs | ≤ 120 | yes |" in _text(tmp_path)

    measured["sdk"] = Found("played once", [_SDK])
    command.measure(tmp_path, standard.FULL, ["sdk"])

    assert "Not measured" not in _text(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"machine": {}, "rows": []}'])
def test_a_record_that_cannot_be_continued_is_reported_before_anything_is_measured(
    tmp_path: Path, measured: dict[str, Found], content: str
) -> None:
    file = page.record_file(tmp_path)
    file.parent.mkdir()
    file.write_text(content)

    with pytest.raises(ConfigurationError, match="no record of benchmarks that can be continued"):
        command.measure(tmp_path, standard.QUICK, ["sdk"])
    assert file.read_text() == content
    assert not measured


def test_a_part_that_does_not_exist_is_reported_before_anything_is_measured(
    tmp_path: Path, measured: dict[str, Found]
) -> None:
    with pytest.raises(ConfigurationError, match="no part speed: sdk, start"):
        command.measure(tmp_path, standard.QUICK, ["sdk", "speed"])
    assert not measured
