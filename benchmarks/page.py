"""docs/benchmarks.md, written from the record.

It shows the machine, the figures with their bars, the plots, and the commands that repeat them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import record
from benchmarks.parts import AtRate, Detail, Part, Row
from benchmarks.record import QUICK, Record
from benchmarks.results.machine import Machine
from benchmarks.results.report import latency, number

TITLES: Final = {
    "throughput": "Throughput, as fast as answered: prepare + submit + one branch call, 128 connections",
    "python": "Python of a message, without sockets and disk; and what a store adds",
    "latency": "Latency at 500 messages a second, open loop",
    "rates": "Latency against rate",
    "transfers": "Whole transfers by the SDK: asyncpg, one UPDATE and the barrier row, 32 at a time",
    "grpc": "Over gRPC, beside a coordinator that commits once a call, 128 requests at a time",
    "rocketmq": "RocketMQ's clients: half + commit, 32 in flight, beside two echoes of the same calls",
    "crossing": "Prepared at one node, submitted at another",
    "sdk": "CPU of the SDK",
    "start": "From the command to ready",
    "abandoned": "Producers that died between prepare and submit",
    "receiver-down": "A receiver that was down",
    "filled": "A full database beside an empty one",
    "cleaning": "While old history is removed",
    "sizes": "Large messages and many branches",
    "memory": "Memory of the server",
    "checks": "With tokens and signed calls, beside a server without",
    "floods": "One hostile client beside an ordinary one",
    "stalled": "A receiver that never answers",
}
_INTRODUCTION: Final = """\
# Benchmarks

Written by `make bench`; [benchmark](how-to/benchmark.md) says what is counted and how. Everything runs on one
machine: generator, branch, server and database share its processors, and fsync is on. **Null** is a server made of
the same protocol classes that keeps nothing: what this machine could do at most at that moment. Compare the ratios;
messages a second say as much about the machine as about the server. Throughput, latency and rates stand beside null's;
transfers beside the same transaction alone, gRPC beside a coordinator with one commit a call, the full database beside
an empty one, a cleaning beside none. The others count seconds and bytes, which null, which keeps nothing, has not.
"""
_WHY: Final = "explanation/performance.md#bars-and-where-they-are-missed"
NOTES: Final = {
    "python": f"""\
The connection, the codec, the coordinator, the delivery and the HTTP client are the real ones; sockets and store are
not. The second half is a real store alone, on this machine's disk: three flushes of a message, by the number of
messages that share them. These two, the kernel's part and the event loop make up the CPU of a message under
[throughput](#throughput-as-fast-as-answered-prepare--submit--one-branch-call-128-connections).
[Where the bars are missed]({_WHY}) has the profile.
""",
    "throughput": f"""\
Null has the kernel's part of a message's CPU, reads its requests and writes its answers. A coordinator has, besides,
its own [Python and its store's work](#python-of-a-message-without-sockets-and-disk-and-what-a-store-adds): more than
the bars leave room for. [Where the bars are missed]({_WHY}) has the profile.
""",
    "crossing": f"""\
With N workers, N − 1 of N messages cross like this, if the client sends each request on any of many connections. The
other node reads the message before it submits it. [Where the bars are missed]({_WHY}) has the profile.
""",
    "latency": f"""\
A change waits for the end of the flush in progress, and then for its own. [Where the bars are missed]({_WHY}) has the
parts of this time.
""",
    "transfers": f"""\
A transaction alone has five exchanges with the database, a transfer has nine with three processes.
[Where the bars are missed]({_WHY}) has the costs.
""",
    "rocketmq": """\
An **echo** is a gRPC server that answers both calls of a transaction with their own bytes. One is made of grpcio,
Python's gRPC library; the other of this project's own HTTP/2 code: no server behind that code could take more here.
Each committed message is then looked for in its queue. The next table
quotes what RocketMQ 5.5.0 did on its own machine, for which the bars in transactions a second were set: broker and
proxy in one JVM, OpenJDK 17, official clients, bodies of 128 bytes, on 2 × Intel Xeon 2.8 GHz, 24 GiB, Debian 12,
everything on these two processors.

| RocketMQ 5.5.0, quoted | min / **median** / max | unit |
|---|---|---|
| half + commit, Java client, 32 threads, synchronous flush | 1,220 / **1,518** / 1,636 | tx/s |
| the same, asynchronous flush: not safe against a loss of power | 5,678 / **6,700** / 6,756 | tx/s |
| the same with a push consumer, end to end, asynchronous flush (two runs) | 1,762, 1,859 | tx/s |
| half + commit, Python client, 32 threads, synchronous flush | 844 / **872** / 890 | tx/s |
| CPU of the broker, half + commit, synchronous flush | 871 | µs a transaction |
| 2,000 orphans, due after 6 s: asked after they were sent | 12 to 27 | s |
| the same: asked about more than once (Java client) | 635 | of 2,000 |
| start until the port is open | 6 to 10 | s |
| memory, idle, name server and broker | 750 | MB |
| kill -9 under load: lost, delivered more than once | 0 of 5,370, 894 of 5,386 | messages |
""",
}
"""Text for readers beside the figures of a part, by its name."""
_QUICK: Final = "**A quick look: short runs, smaller sizes than the bars ask for.**"


def record_file(docs: Path) -> Path:
    """Return the file of the figures from which the page is written."""
    return docs / "benchmarks" / "figures.json"


def put(docs: Path, name: str, part: Part, drawn: dict[str, str]) -> None:
    """Put the results of one part into the record, and write page and plots.

    Every other part stays as it is.
    """
    file = record_file(docs)
    file.parent.mkdir(parents=True, exist_ok=True)
    found = record.load(file)
    found.put(name, msgspec.structs.replace(part, plots=list(drawn)))
    for plot, svg in drawn.items():
        (file.parent / plot).write_text(svg)
    record.store(file, found)
    write(docs, found)


def write(docs: Path, found: Record) -> None:
    """Write the page alone."""
    (docs / "benchmarks.md").write_text("\n".join(_page(found)) + "\n")


def _page(found: Record) -> Iterator[str]:
    parts = {name: found.parts[name] for name in TITLES if name in found.parts}
    yield _INTRODUCTION
    if parts:
        yield from _found(parts)
    yield from _missing([name for name in TITLES if name not in parts or not parts[name].has_numbers])


def _found(parts: dict[str, Part]) -> Iterator[str]:
    """Yield the measured parts, and those that failed."""
    machine = _most_common_machine(list(parts.values()))
    loads = {part.load_before for part in parts.values()}
    in_one_go = len(loads) == 1
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    databases = sorted({f", PostgreSQL {part.postgres}" for part in parts.values() if part.postgres})
    yield f"{machine.line()}{''.join(databases)}. {versions}."
    if in_one_go:
        minutes = sum(part.took_s for part in parts.values()) / 60
        load = f"load average before: {loads.pop():.1f} (an idle machine: near 0)"
        yield f"All parts in one go, {minutes:.0f} min in all; {load}."
    else:
        yield "Not all parts were measured in one go: each says the load average before (an idle machine: near 0)."
    for name, part in parts.items():
        yield f"\n## {TITLES[name]}\n"
        if part.failure:
            yield f"**Not measured**: {part.failure[:300]}\n"
        if name in NOTES:
            yield NOTES[name]
        if part.has_figures:
            yield from _measured(part, machine, with_load=not in_one_go)
            yield from _figures(name, part)


def _missing(names: list[str]) -> Iterator[str]:
    """Yield the parts of the standard set without numbers.

    Without them a reader would take the page for the whole set.
    """
    if not names:
        return
    yield "\n## Still to be measured\n"
    yield from (f"* {TITLES[name]}: `make bench PARTS={name}`" for name in names)


def _most_common_machine(parts: list[Part]) -> Machine:
    """Return the machine that is not named again at each part."""
    encoded = Counter(msgspec.json.encode(part.machine) for part in parts)
    return msgspec.json.decode(encoded.most_common(1)[0][0], type=Machine)


def _measured(part: Part, usual: Machine, *, with_load: bool) -> Iterator[str]:
    """Yield time, duration, and the machine where it is not the usual one."""
    took = f", {_duration(part.took_s)} in all" if part.took_s else ""
    load = f" Load average before: {part.load_before:.1f}." if with_load else ""
    yield f"Measured {part.measured}: {part.how}{took}.{load}"
    if part.machine != usual:
        versions = ", ".join(f"{name} {version}" for name, version in part.machine.packages.items())
        yield f"On another machine: {part.machine.line()}. {versions}."
    if part.effort == QUICK:
        instead = f" It took the place of a longer measurement ({part.instead_of})." if part.instead_of else ""
        yield f"{_QUICK}{instead}"
    yield ""


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _figures(name: str, part: Part) -> Iterator[str]:
    yield from _table(part.rows)
    yield from _details(part.details)
    yield from _rates(part.at_rates)
    for plot in part.plots:
        yield f"\n![{TITLES[name]}](benchmarks/{plot})"
    if part.commands:
        yield "\n```"
        yield from part.commands
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


def _details(details: list[Detail]) -> Iterator[str]:
    if not details:
        return
    yield "\nOf the run in the middle:\n"
    yield "| | p50 / p90 / p99 / p99.9 ms | CPU µs a message, memory MB |"
    yield "|---|---|---|"
    for detail in details:
        latencies = "<br>".join(f"{kind}: {latency(found)}" for kind, found in detail.latencies.items())
        usage = "<br>".join(
            f"{used.name}: {used.cpu_us_per_message:,.0f} µs, {used.memory_mb:,.0f} MB" for used in detail.usage
        )
        yield f"| {detail.name} | {latencies} | {usage} |"


def _rates(found: list[AtRate]) -> Iterator[str]:
    """Yield submit → branch, one row for each rate and one column for each server."""
    if not found:
        return
    servers = list(dict.fromkeys(one.server for one in found))
    several = max(Counter((one.rate, one.server) for one in found).values()) > 1
    spread = " (min – **median** – max)" if several else ""
    yield f"| submit → branch, p50 / p99 ms{spread}, at messages a second | {' | '.join(servers)} |"
    yield "|---|" + "---|" * len(servers)
    for rate in sorted({one.rate for one in found}):
        cells = []
        for server in servers:
            rounds = [one.latency for one in found if (one.rate, one.server) == (rate, server)]
            seen = [latency for latency in rounds if latency is not None]
            p50, p99 = _spread([one.p50_ms for one in seen]), _spread([one.p99_ms for one in seen])
            cells.append(f"{p50} / {p99}" if seen else "–")
        yield f"| {rate:g} | {' | '.join(cells)} |"


def _spread(values: list[float]) -> str:
    """Return one value, or the smallest, the middle and the largest of several.

    >>> _spread([0.5]), _spread([0.25, 3.0, 1.0])
    ('0.50', '0.25 – **1.00** – 3.00')
    """
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{min(values):.2f} – **{statistics.median(values):.2f}** – {max(values):.2f}"
