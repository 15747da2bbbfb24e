"""docs/benchmarks.md: machine, figures with their bars, plots, and the commands that repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.results import Results, Row
from twophase.bench import plots
from twophase.bench.compare import Comparison
from twophase.bench.report import latency, middle, number

TITLES: Final = {
    "throughput": "Throughput, as fast as answered: prepare + submit + one branch call, 128 connections",
    "latency": "Latency at 500 messages a second, open loop",
    "rates": "Latency against rate",
    "transfers": "Whole transfers by the SDK: asyncpg, one UPDATE and the barrier row, 32 at a time",
    "grpc": "Over gRPC, beside a coordinator that commits once a call, 128 requests at a time",
    "sdk": "CPU of the SDK",
    "start": "From the command to ready",
    "abandoned": "Producers that died between prepare and submit",
    "receiver-down": "A receiver that was down",
    "filled": "A full database beside an empty one",
    "memory": "Memory of the server",
    "stalled": "A receiver that never answers",
}
_INTRODUCTION: Final = """\
# Benchmarks

Written by `make bench`; [benchmark](how-to/benchmark.md) says what is counted and how. Everything runs on one
machine: generator, branch, server and database share its processors, and fsync is on. **Null** is a server made of
the same protocol classes that keeps nothing: what this machine could do at most at that moment. Compare the ratios;
messages a second say as much about the machine as about the server.
"""


def write(docs: Path, results: Results) -> None:
    """Write the page, its plots, and the figures as JSON."""
    folder = docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = dict(_drawn(results))
    for name, svg in drawn.items():
        (folder / name).write_text(svg)
    figures = {"machine": results.machine, "effort": results.effort, "rows": results.rows}
    (folder / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    page = docs / "benchmarks.md"
    page.write_text("\n".join(_page(results, drawn)) + "\n")
    print(f"written: {page}, and {len(drawn)} plots")


def _page(results: Results, drawn: dict[str, str]) -> Iterator[str]:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    yield _INTRODUCTION
    yield f"{machine.line()}. {versions}."
    yield f"Load average before the first run: {results.load_before:.1f} (an idle machine: near 0)."
    if results.effort == "quick":
        yield "\n**A quick look: one short run of each, smaller sizes than the bars ask for.**"
    for part, title in TITLES.items():
        rows = [row for row in results.rows if row.part == part]
        plots_of = [name for name in drawn if name.startswith(f"{part}-")]
        failure = results.failures.get(part)
        if rows or plots_of or failure:
            yield f"\n## {title}\n"
            if failure:
                yield f"**Not measured**: {failure[:300]}\n"
            yield from _table(rows)
            if part in {"throughput", "transfers"}:
                yield from _details([one for one in results.comparisons if _part_of(one) == part])
            for name in plots_of:
                yield f"\n![{title}](benchmarks/{name})"
            if part in results.commands:
                yield "\n```"
                yield from results.commands[part]
                yield "```"


def _table(rows: list[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "| | min / **median** / max | unit | bar | reached |"
    yield "|---|---|---|---|---|"
    for row in rows:
        bar = "" if row.bar is None else f"{'≥' if row.at_least else '≤'} {row.bar:g}"
        reached = {None: "", True: "yes", False: "**no**"}[row.reached]
        yield f"| {row.what} | {_values(row)} | {row.unit} | {bar} | {reached} |"


def _values(row: Row) -> str:
    if len(row.values) == 1:
        return f"**{number(row.middle)}** (one run)"
    return f"{number(min(row.values))} / **{number(row.middle)}** / {number(max(row.values))}"


def _details(comparisons: list[Comparison]) -> Iterator[str]:
    """Latency, CPU and memory of the run with the middle throughput."""
    if not comparisons:
        return
    yield "\nOf the run in the middle:\n"
    yield "| | p50 / p90 / p99 / p99.9 ms | CPU µs a message, memory MB |"
    yield "|---|---|---|"
    columns = [(one.name, one.runs) for one in comparisons]
    columns.append((comparisons[0].ceiling_name, comparisons[0].ceilings))
    for name, runs in columns:
        run = middle(runs)
        latencies = "<br>".join(f"{kind}: {latency(run.latency(kind))}" for kind in run.histograms)
        usage = "<br>".join(
            f"{one.name}: {one.cpu_us_per_message:,.0f} µs, {one.memory_mb:,.0f} MB" for one in run.usage
        )
        yield f"| {name} | {latencies} | {usage} |"


def _part_of(comparison: Comparison) -> str:
    return "throughput" if comparison.ceiling_name == "null" else "transfers"


def _drawn(results: Results) -> Iterator[tuple[str, str]]:
    """Plots by the name of their file, which begins with the part they belong to."""
    saturated = [one for one in results.comparisons if _part_of(one) == "throughput"]
    if saturated:
        runs = [(one.name, middle(one.runs)) for one in saturated] + [("null", middle(saturated[0].ceilings))]
        yield "throughput-over-time.svg", plots.throughput("Throughput at the branch", runs)
        found = [(name, run.histograms[plots.BRANCH]) for name, run in runs if plots.BRANCH in run.histograms]
        yield "throughput-latency.svg", plots.distribution("Submit → branch, saturated", found)
    if results.by_rate:
        runs_by_rate = list(results.by_rate.items())
        yield "rates-latency.svg", plots.against_rate("Submit → branch, by rate", runs_by_rate)
        slowest = [(name, runs[0].histograms) for name, runs in runs_by_rate]
        rate = runs_by_rate[0][1][0].workload.rate
        lines = [(name, found[plots.BRANCH]) for name, found in slowest if plots.BRANCH in found]
        yield "rates-distribution.svg", plots.distribution(f"Submit → branch at {rate:g} messages a second", lines)
