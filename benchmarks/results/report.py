"""The table at the end of a benchmark, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.compare import Comparison, Spread
from benchmarks.load.measurement import Latency, Measurement
from benchmarks.results.machine import Machine
from benchmarks.scenarios.figure import Figure


def show(console: Console, machine: Machine, comparisons: Sequence[Comparison]) -> None:
    """Print machine, work and figures."""
    console.print(machine.line(), style="dim")
    for comparison in comparisons:
        console.print(_table(comparison))
        for run in comparison.runs:
            _tell_errors(console, run)


def _table(comparison: Comparison) -> Table:
    runs, ceilings = comparison.runs, comparison.ceilings
    workload = runs[0].workload
    load = f"{workload.rate:g} msg/s, open loop" if workload.rate else "as fast as answered"
    title = f"{workload.mode.value}, {workload.connections} connections, {load}, {workload.seconds:g} s × {len(runs)}"
    table = Table(title=title, title_justify="left", title_style="bold", show_lines=False)
    table.add_column("")
    table.add_column(comparison.name, justify="right")
    if ceilings:
        table.add_column(comparison.ceiling_name, justify="right")
    columns = [runs, ceilings] if ceilings else [runs]

    def row(name: str, cells: Sequence[str]) -> None:
        table.add_row(name, *cells)

    row("messages a second", [spread([run.per_second for run in column]) for column in columns])
    if comparison.ratio is not None:
        row(f"part of {comparison.ceiling_name}", [percent(comparison.ratio), ""])
    if comparison.cpu_ratio is not None:
        row("the same, by CPU of all processes", [percent(comparison.cpu_ratio), ""])
    row("latencies:", ["p50 / p90 / p99 / p99.9"] * len(columns))
    for name in dict.fromkeys(name for column in columns for run in column for name in run.histograms):
        row(f"{name}, ms", [latency(middle(column).latency(name)) for column in columns])
    for name in dict.fromkeys(usage.name for column in columns for run in column for usage in run.usage):
        row(f"{name}: CPU µs a message / memory MB", [_usage(column, name) for column in columns])
    row("all: CPU µs a message", [f"{middle(column).cpu_us_per_message:,.1f}" for column in columns])
    row("other programs: processors in use", [f"{middle(column).foreign_cores:.2f}" for column in columns])
    row("messages begun / delivered", [_counts(column, "begun", "delivered") for column in columns])
    row("lost / duplicate / too early", [_counts(column, "lost", "duplicates", "early") for column in columns])
    row(
        "errors / unanswered / not begun",
        [f"{_errors(column)} / {_counts(column, 'unanswered', 'not_begun')}" for column in columns],
    )
    return table


def spread(figures: Sequence[float]) -> str:
    """Return one figure, or the least, the middle and the greatest."""
    found = Spread.of(figures)
    return (
        f"{found.middle:,.0f}" if len(figures) == 1 else f"{found.low:,.0f} / {found.middle:,.0f} / {found.high:,.0f}"
    )


def percent(found: Spread) -> str:
    """Return a ratio with its spread."""
    if found.low == found.high:
        return f"{found.middle:.1%}"
    return f"{found.low:.1%} / {found.middle:.1%} / {found.high:.1%}"


def latency(found: Latency | None) -> str:
    """Return the percentiles of one latency."""
    if found is None:
        return "–"
    return f"{found.p50_ms:.2f} / {found.p90_ms:.2f} / {found.p99_ms:.2f} / {found.p999_ms:.2f}"


def middle(runs: Sequence[Measurement]) -> Measurement:
    """Return the run with the median throughput."""
    return sorted(runs, key=lambda run: run.per_second)[len(runs) // 2]


def _usage(runs: Sequence[Measurement], name: str) -> str:
    for usage in middle(runs).usage:
        if usage.name == name:
            return f"{usage.cpu_us_per_message:,.1f} / {usage.memory_mb:,.0f}"
    return "–"


def _counts(runs: Sequence[Measurement], *names: str) -> str:
    return " / ".join(f"{sum(getattr(run.findings, name) for run in runs):,}" for name in names)


def _errors(runs: Sequence[Measurement]) -> int:
    return sum(sum(run.findings.errors.values()) for run in runs)


def _tell_errors(console: Console, run: Measurement) -> None:
    for what, number in sorted(run.findings.errors.items(), key=lambda item: -item[1])[:5]:
        console.print(f"  {number:,} × {what}", style="yellow", markup=False)


def show_figures(console: Console, machine: Machine, name: str, figures: Sequence[Figure]) -> None:
    """Print the figures of a scenario."""
    console.print(machine.line(), style="dim")
    table = Table(title=name, title_justify="left", title_style="bold")
    for heading in ("", "measured", "unit", "bar", "reached"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for figure in figures:
        reached = {None: Text(), True: Text("yes"), False: Text("no", "red")}[figure.reached]
        table.add_row(figure.what, number(figure.value), figure.unit, figure.bar_text(), reached)
    console.print(table)


def number(value: float) -> str:
    """Return a figure with its significant digits only."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def as_json(machine: Machine, comparisons: Sequence[Comparison]) -> bytes:
    """Return everything that was measured, with latencies as percentiles."""
    document: dict[str, Any] = {
        "machine": machine,
        "comparisons": [_comparison(comparison) for comparison in comparisons],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "server": comparison.name,
        "ratio": comparison.ratio,
        "cpu_ratio": comparison.cpu_ratio,
        "runs": [run_document(run) for run in comparison.runs],
        "beside": comparison.ceiling_name,
        "runs_beside": [run_document(run) for run in comparison.ceilings],
    }


def run_document(run: Measurement) -> dict[str, Any]:
    """Return one run in the shape of the JSON document."""
    return {
        "workload": run.workload,
        "per_second": run.per_second,
        "messages": run.messages,
        "measured_s": run.measured_s,
        "drained_s": run.drained_s,
        "latencies": {name: run.latency(name) for name in run.histograms},
        "usage": run.usage,
        "foreign_cores": run.foreign_cores,
        "findings": run.findings,
        "series": run.series,
    }
