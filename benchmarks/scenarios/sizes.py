"""Large messages and many branches: what a byte and a branch cost.

Each size has a run of its own, as fast as answered. A cliff is a byte that costs more in a large message than in a
small one, or a branch that costs more among many than among few; the bars allow twice as much.
"""

from __future__ import annotations

from typing import Final

from benchmarks.compare import measure
from benchmarks.load.measurement import Measurement
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, lost_or_early
from benchmarks.servers.setups import store
from twophase.core.limits import BRANCHES_MAX

SECONDS: Final = 4.0
PAYLOADS: Final = (1 << 10, 64 << 10, 1 << 20)
BRANCHES: Final = (1, 10, BRANCHES_MAX.value)
_CONNECTIONS: Final = 16
_CLIFF: Final = 2.0
_MEMORY_BAR_MB: Final = 500.0


def play_sizes(stage: Stage) -> list[Figure]:
    """Play the scenario of the module; `size` is the number of connections."""
    seconds, connections = stage.seconds or SECONDS, stage.size or _CONNECTIONS
    with store(stage.kind, stage.directory) as made, made.served() as server:

        def run(payload_bytes: int, branches: int) -> Measurement:
            stage.tell(f"{payload_bytes:,} bytes for each of {branches} branches, for {seconds:g} s")
            workload = Workload(
                connections=connections,
                seconds=seconds,
                warmup_s=stage.warmup_s,
                payload_bytes=payload_bytes,
                branches=branches,
            )
            return measure(server.url, workload, server.processes)

        payloads = [run(size, 1) for size in PAYLOADS]
        branches = [run(28, count) for count in BRANCHES]
    per_byte_ns = [1000 * cost for cost in _slopes(PAYLOADS, payloads)]
    per_branch_us = _slopes(BRANCHES, branches)
    return [
        *(
            figure
            for size, one in zip(PAYLOADS, payloads, strict=True)
            for figure in _figures(f"{size >> 10} KiB", one)
        ),
        Figure("a byte, 1 to 64 KiB", per_byte_ns[0], "ns of CPU"),
        Figure("a byte, 64 KiB to 1 MiB", per_byte_ns[1], "ns of CPU"),
        Figure("a byte: the second to the first", _ratio(per_byte_ns), "times", _CLIFF),
        *(
            figure
            for count, one in zip(BRANCHES, branches, strict=True)
            for figure in _figures(f"{count} branch{'' if count == 1 else 'es'}", one)
        ),
        Figure(f"a branch, {BRANCHES[0]} to {BRANCHES[1]}", per_branch_us[0], "µs of CPU"),
        Figure(f"a branch, {BRANCHES[1]} to {BRANCHES[2]}", per_branch_us[1], "µs of CPU"),
        Figure("a branch: the second to the first", _ratio(per_branch_us), "times", _CLIFF),
        Figure("memory, highest", max(one.usage[1].memory_mb for one in payloads + branches), "MB", _MEMORY_BAR_MB),
        lost_or_early(payloads + branches),
    ]


def _figures(what: str, run: Measurement) -> list[Figure]:
    return [
        Figure(f"{what}: messages", run.per_second, "msg/s"),
        Figure(f"{what}: CPU of the server", run.usage[1].cpu_us_per_message, "µs a message"),
    ]


def _slopes(sizes: tuple[int, ...], runs: list[Measurement]) -> list[float]:
    """Return what one more costs the server between neighbouring sizes, in µs of CPU."""
    costs = [run.usage[1].cpu_us_per_message for run in runs]
    pairs = zip(sizes, costs, sizes[1:], costs[1:], strict=False)
    return [(higher - lower) / (more - less) for less, lower, more, higher in pairs]


def _ratio(slopes: list[float]) -> float:
    return slopes[1] / slopes[0] if slopes[0] > 0 else 0.0
