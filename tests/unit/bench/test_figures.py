"""Reports and plots show ratios of neighbours, bars and valid SVG."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.compare import Comparison, Spread
from benchmarks.results import plots
from benchmarks.results.chart import Axis, Line, chart
from benchmarks.results.report import number
from benchmarks.scenarios.figure import Figure
from tests.unit.bench.runs import run


def test_ratio_is_of_neighbours_and_shows_its_spread() -> None:
    comparison = Comparison("sqlite", [run(50), run(90), run(30)], [run(100), run(100), run(100)])

    assert comparison.ratio == Spread(0.3, 0.5, 0.9)


def test_without_runs_beside_it_there_is_no_ratio() -> None:
    assert Comparison("sqlite", [run(50)], []).ratio is None


@pytest.mark.parametrize(
    ("figure", "reached"),
    [
        (Figure("", 0.45, "", 0.45, at_least=True), True),
        (Figure("", 0.44, "", 0.45, at_least=True), False),
        (Figure("", 2.0, "", 2.0), True),
        (Figure("", 2.1, "", 2.0), False),
        (Figure("", 2.1, ""), None),
    ],
)
def test_a_bar_is_reached_when_it_is_met(figure: Figure, reached: bool | None) -> None:
    assert figure.reached is reached


@pytest.mark.parametrize(("value", "text"), [(1234567.8, "1,234,568"), (0.4567, "0.457"), (3.0, "3"), (12.34, "12.3")])
def test_figures_have_as_many_digits_as_mean_something(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("points", [(), ((1.0, 5.0),), ((0.0, 0.0), (1.0, 3.0)), ((1.0, 2.0), (2.0, 2.0))])
def test_a_chart_is_svg_whatever_its_points(points: tuple[tuple[float, float], ...], *, logarithmic: bool) -> None:
    svg = chart("A & <B>", Axis("x", logarithmic), Axis("y", logarithmic), [Line("a<b", points)])

    assert ET.fromstring(svg).tag.endswith("svg")


def test_plots_of_a_comparison_are_written(tmp_path: Path) -> None:
    written = plots.write(tmp_path, [Comparison("sqlite", [run(50, 10), run(90, 20)], [run(100), run(100)])])

    assert [path.name for path in written] == ["throughput.svg", "latency.svg", "latency-against-rate.svg"]
    for path in written:
        assert ET.fromstring(path.read_text()).findall("{http://www.w3.org/2000/svg}polyline")


def test_latency_against_rate_shows_the_server_and_what_keeps_nothing(tmp_path: Path) -> None:
    by_rate = [Comparison("sqlite", [run(rate, rate)], [run(rate, rate)]) for rate in (250.0, 500.0)]
    plots.write(tmp_path, by_rate)

    svg = (tmp_path / "latency-against-rate.svg").read_text()
    for name in ("sqlite p50", "sqlite p99", "null p50", "null p99"):
        assert f">{name}</text>" in svg
