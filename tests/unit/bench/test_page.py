"""docs/benchmarks.md shows every value that was measured.

Each stands with its bar, whether it is reached, its date, and the command that repeats it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks import page, standard
from benchmarks.compare import Comparison, Spread
from benchmarks.drawings import drawn
from benchmarks.load.measurement import Latency
from benchmarks.parts import AtRate, Detail, Found, Part, Row
from benchmarks.record import Record
from benchmarks.results.machine import this_machine
from benchmarks.scenarios.figure import Figure
from tests.unit.bench.runs import run

_SQLITE = Comparison("sqlite", [run(500), run(400), run(600)], [run(1000), run(1000), run(1000)])


def part(*rows: Row, effort: str = "full", measured: str = "2026-11-22 01:15 UTC", load: float = 0.2) -> Part:
    """One that was measured."""
    found = list(rows or standard.throughput_rows(_SQLITE, 0.45))
    return Part(measured, effort, "3 rounds of 5 s", 74.0, load, this_machine(), found)


def _page(tmp_path: Path, **parts: Part) -> str:
    page.write(tmp_path, Record(parts))
    return (tmp_path / "benchmarks.md").read_text()


def test_every_value_stands_beside_its_bar(tmp_path: Path) -> None:
    measured = msgspec.structs.replace(part(), commands=["python -m benchmarks.load --setup sqlite --rounds 3"])
    text = _page(tmp_path, throughput=measured)

    assert "| sqlite: part of null's | 0.4 / **0.5** / 0.6 | of null | ≥ 0.45 | yes |" in text
    assert "| sqlite: messages | 400 / **500** / 600 | msg/s |  |  |" in text
    assert "\n```\npython -m benchmarks.load --setup sqlite --rounds 3\n```" in text
    assert "All parts in one go, 1 min in all; load average before: 0.2" in text
    assert "Measured 2026-11-22 01:15 UTC: 3 rounds of 5 s, 74 s in all.\n" in text


def test_a_missed_bar_is_reported(tmp_path: Path) -> None:
    text = _page(tmp_path, throughput=part(Row("sqlite", "of null", (0.3, 0.44, 0.6), 0.45, at_least=True)))

    assert "| 0.3 / **0.44** / 0.6 | of null | ≥ 0.45 | **no** |" in text


def test_the_run_in_the_middle_is_shown_in_detail(tmp_path: Path) -> None:
    text = _page(tmp_path, throughput=msgspec.structs.replace(part(), details=[Detail.of("sqlite", _SQLITE.runs)]))

    assert "| sqlite | submit → branch: 1.00 / 1.80 / 1.98 / 2.00 | generator + sink: 50 µs, 30 MB<br>server" in text


def test_latencies_stand_by_rate_and_server(tmp_path: Path) -> None:
    at_rates = [
        AtRate("null", 250.0, Latency(9, 0.1, 0.2, 0.3, 0.4)),
        AtRate("null", 500.0, Latency(9, 0.2, 0.3, 0.4, 0.5)),
        AtRate("sqlite", 500.0, Latency(9, 0.9, 1.2, 2.51, 3.0)),
        AtRate("sqlite", 250.0, None),
    ]
    text = _page(tmp_path, rates=msgspec.structs.replace(part(), rows=[], at_rates=at_rates))

    assert "at messages a second | null | sqlite |\n|---|---|---|\n" in text
    assert "| 250 | 0.10 / 0.30 | – |\n| 500 | 0.20 / 0.40 | 0.90 / 2.51 |\n" in text


def test_several_rounds_at_a_rate_are_one_point_with_their_spread(tmp_path: Path) -> None:
    p99s = {0.5: 9.0, 0.25: 2.0, 4.0: 3.5}
    rounds = [AtRate("sqlite", 500.0, Latency(9, p50, p50, p99, p99)) for p50, p99 in p99s.items()]
    text = _page(tmp_path, rates=msgspec.structs.replace(part(), rows=[], at_rates=[*rounds, AtRate("x", 500.0, None)]))

    assert "p50 / p99 ms (min – **median** – max)" in text
    assert "| 500 | 0.25 – **0.50** – 4.00 / 2.00 – **3.50** – 9.00 | – |\n" in text


def test_the_plot_by_rate_shows_each_rates_round_in_the_middle() -> None:
    rounds = [run(1, rate, slow=slow) for slow in (3, 1, 2) for rate in (500.0, 250.0)]
    middle = [run(1, rate, slow=2) for rate in (250.0, 500.0)]

    assert drawn(Found(by_rate={"sqlite": rounds})) == drawn(Found(by_rate={"sqlite": middle}))


def test_the_version_of_postgresql_stands_on_the_page(tmp_path: Path) -> None:
    text = _page(tmp_path, throughput=msgspec.structs.replace(part(), postgres="15.18"), start=part())

    assert ", PostgreSQL 15.18. " in text


def test_every_plot_the_page_shows_is_written(tmp_path: Path) -> None:
    saturated = drawn(Found(comparisons=[_SQLITE]))
    by_rate = drawn(Found(by_rate={"sqlite": [run(250, 250.0), run(500, 500.0)]}))
    page.put(tmp_path, "throughput", part(), saturated)
    page.put(tmp_path, "rates", part(), by_rate)
    text = (tmp_path / "benchmarks.md").read_text()
    written = {path.name for path in (tmp_path / "benchmarks").glob("*.svg")}

    assert written == {
        "throughput-over-time.svg",
        "throughput-latency.svg",
        "rates-latency.svg",
        "rates-distribution.svg",
    }
    assert all(f"](benchmarks/{name})" in text for name in written)


def test_a_quick_look_says_that_it_is_one(tmp_path: Path) -> None:
    text = _page(tmp_path, throughput=part(effort="quick"), start=part(effort="full"))

    assert text.count("**A quick look") == 1


def test_parts_of_several_runs_say_each_their_own_load(tmp_path: Path) -> None:
    text = _page(tmp_path, throughput=part(load=0.25), start=part(load=1.5))

    assert "All parts in one go" not in text
    assert "Load average before: 0.2.\n" in text
    assert "Load average before: 1.5.\n" in text


def test_a_part_of_another_machine_says_so(tmp_path: Path) -> None:
    elsewhere = msgspec.structs.replace(this_machine(), processor="Z80", cpus=7)
    foreign = msgspec.structs.replace(part(), machine=elsewhere)
    text = _page(tmp_path, throughput=part(), start=part(), sdk=foreign)

    assert text.count("On another machine: 7 × Z80") == 1
    assert text.index("## CPU of the SDK") < text.index("On another machine") < text.index("## From the command")


def test_parts_without_figures_are_named_with_the_command_that_measures_them(tmp_path: Path) -> None:
    failed = msgspec.structs.replace(part(), rows=[], failure="no room on the disk")
    drawn_only = msgspec.structs.replace(part(), rows=[], plots=["rates-latency.svg"])
    text = _page(tmp_path, throughput=part(), memory=failed, rates=drawn_only)
    named = text.partition("\n## Still to be measured\n\n")[2].splitlines()

    assert named == [
        f"* {title}: `make bench PARTS={name}`" for name, title in page.TITLES.items() if name != "throughput"
    ]
    assert "**Not measured**: no room on the disk" in text
    assert "](benchmarks/rates-latency.svg)" in text


def test_a_page_of_which_nothing_is_measured_names_every_part(tmp_path: Path) -> None:
    assert _page(tmp_path).count("`make bench PARTS=") == len(standard.PARTS)


def test_a_whole_page_names_no_part_as_missing(tmp_path: Path) -> None:
    assert "Still to be measured" not in _page(tmp_path, **{name: part() for name in page.TITLES})


def test_figures_of_several_plays_become_one_row() -> None:
    start, filled = Found(), Found()
    start.add("sqlite", [[Figure("ready", seconds, "s", 1.0)] for seconds in (0.5, 0.9, 1.4)])
    filled.add("postgres", [[Figure("full", 0.9, "of empty", 0.85, True, Spread(0.8, 0.9, 1.0))]])

    assert start.rows == [Row("sqlite: ready", "s", (0.5, 0.9, 1.4), 1.0)]
    assert filled.rows == [Row("postgres: full", "of empty", (0.8, 0.9, 1.0), 0.85, at_least=True)]


@pytest.mark.parametrize("name", standard.PARTS)
def test_every_part_has_a_title_and_every_title_a_part(name: str) -> None:
    assert name in page.TITLES
    assert set(page.TITLES) == set(standard.PARTS)


def test_the_ratio_by_cpu_is_that_of_all_processes() -> None:
    comparison = Comparison("sqlite", [run(500, cpu_us=250.0)], [run(1000, cpu_us=100.0)])

    assert comparison.cpu_ratio == Spread(0.5, 0.5, 0.5)
