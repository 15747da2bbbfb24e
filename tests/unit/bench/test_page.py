"""docs/benchmarks.md says what was found: every value, its bar, whether it is reached, and how to repeat it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import page, standard
from benchmarks.results import Results, Row
from tests.unit.bench.runs import run
from twophase.bench.compare import Comparison, Spread
from twophase.bench.machine import this_machine
from twophase.bench.scenarios.figure import Figure
from twophase.core.errors import BenchmarkFailed

ROOT = Path(__file__).parents[3]


def _results() -> Results:
    results = Results(this_machine(), "full", 0.2)
    results.comparisons = [Comparison("sqlite", [run(500), run(400), run(600)], [run(1000), run(1000), run(1000)])]
    results.rows = standard.throughput_rows(results.comparisons[0], 0.45)
    results.by_rate = {"sqlite": [run(250, 250.0), run(500, 500.0)]}
    results.commands = {"throughput": ["twophase bench --setup sqlite --rounds 3"]}
    return results


def test_every_value_stands_beside_its_bar(tmp_path: Path) -> None:
    page.write(tmp_path, _results())
    text = (tmp_path / "benchmarks.md").read_text()

    assert "| sqlite: part of null's | 0.4 / **0.5** / 0.6 | of null | ≥ 0.45 | yes |" in text
    assert "| sqlite: messages | 400 / **500** / 600 | msg/s |  |  |" in text
    assert "twophase bench --setup sqlite --rounds 3" in text
    assert "Load average before the first run: 0.2" in text


def test_a_bar_that_is_missed_is_said_to_be(tmp_path: Path) -> None:
    results = _results()
    results.rows = [Row("throughput", "sqlite", "of null", (0.3, 0.44, 0.6), 0.45, at_least=True)]
    page.write(tmp_path, results)

    assert "| 0.3 / **0.44** / 0.6 | of null | ≥ 0.45 | **no** |" in (tmp_path / "benchmarks.md").read_text()


def test_every_plot_the_page_shows_is_written(tmp_path: Path) -> None:
    page.write(tmp_path, _results())
    text = (tmp_path / "benchmarks.md").read_text()
    drawn = {path.name for path in (tmp_path / "benchmarks").glob("*.svg")}

    assert drawn == {
        "throughput-over-time.svg",
        "throughput-latency.svg",
        "rates-latency.svg",
        "rates-distribution.svg",
    }
    assert all(f"](benchmarks/{name})" in text for name in drawn)
    assert len(json.loads((tmp_path / "benchmarks" / "figures.json").read_text())["rows"]) == 5


def test_a_quick_look_says_that_it_is_one(tmp_path: Path) -> None:
    results = _results()
    results.effort = "quick"
    page.write(tmp_path, results)

    assert "A quick look" in (tmp_path / "benchmarks.md").read_text()


def test_a_part_that_failed_is_said_to_have_failed_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_effort: standard.Effort, _results: Results) -> None:
        raise BenchmarkFailed("the server did not start")

    def succeed(_effort: standard.Effort, results: Results) -> None:
        results.rows.append(Row("sdk", "async", "µs", (100.0,), 120.0))

    monkeypatch.setattr(standard, "PARTS", {"start": fail, "sdk": succeed})
    page.write(tmp_path, standard.measure_parts(standard.QUICK, []))
    text = (tmp_path / "benchmarks.md").read_text()

    assert "**Not measured**: the server did not start" in text
    assert "| async | **100** (one run) | µs | ≤ 120 | yes |" in text


def test_figures_of_several_plays_become_one_row() -> None:
    results = _results()
    results.add("start", "sqlite", [[Figure("ready", seconds, "s", 1.0)] for seconds in (0.5, 0.9, 1.4)])
    results.add("filled", "postgres", [[Figure("full", 0.9, "of empty", 0.85, True, Spread(0.8, 0.9, 1.0))]])

    assert results.rows[-2:] == [
        Row("start", "sqlite: ready", "s", (0.5, 0.9, 1.4), 1.0),
        Row("filled", "postgres: full", "of empty", (0.8, 0.9, 1.0), 0.85, at_least=True),
    ]


@pytest.mark.parametrize("part", standard.PARTS)
def test_every_part_has_a_title_and_every_title_a_part(part: str) -> None:
    assert part in page.TITLES
    assert set(page.TITLES) == set(standard.PARTS)


def test_the_ratio_by_cpu_is_that_of_all_processes() -> None:
    comparison = Comparison("sqlite", [run(500, cpu_us=250.0)], [run(1000, cpu_us=100.0)])

    assert comparison.cpu_ratio == Spread(0.5, 0.5, 0.5)
