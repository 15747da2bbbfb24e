"""Every scenario of `twophase bench`, small: it plays to its end, and its figures say that nothing was lost.

How fast a small one is says nothing, so no other bar is looked at here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.bench.command import bench
from twophase.bench.scenarios.catalogue import SCENARIOS

_SMALL = {
    "latency": ("--size", "100", "--seconds", "0.5"),
    "grpc": ("--size", "8", "--seconds", "0.3"),
    "sdk": ("--size", "200"),
    "filled": ("--size", "200", "--seconds", "0.3"),
    "cleaning": ("--size", "40000", "--seconds", "0.2"),
    "abandoned": ("--size", "100", "--seconds", "1"),
    "receiver-down": ("--size", "100", "--seconds", "0.2"),
    "memory": ("--seconds", "0.3"),
    "start": ("--size", "500"),
    "stalled": ("--size", "400", "--seconds", "0.3"),
}
_SAID = {
    "cleaning": ("throughput beside a cleaning: removed", "throughput beside a cleaning that is behind: removed"),
    "abandoned": (
        "100 abandoned prepares: decided after due, the last",
        "the same beside a producer that hangs with 150, the last",
        "the same where memory holds 120 messages, the last",
    ),
    "receiver-down": ("all delivered after return",),
    "memory": ("memory, idle", "throughput meanwhile"),
    "stalled": ("the other receiver's retries", "delivered after it answers again"),
}
"""Figures that a play in which everything happened has above nothing."""


def _played(tmp_path: Path, scenario: str, *arguments: str) -> dict[str, float]:
    """Value by figure; the bars on lost messages hold."""
    file = tmp_path / "figures.json"
    done = bench("--scenario", scenario, *arguments, "--json", str(file))
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())["figures"]
    assert all(
        figure["value"] <= figure["bar"] for figure in figures if "lost" in figure["what"] and figure["bar"] == 0
    )
    return {figure["what"]: figure["value"] for figure in figures}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_small_scenario_is_played_on_sqlite(scenario: str, tmp_path: Path) -> None:
    found = _played(tmp_path, scenario, *_SMALL[scenario])

    assert found
    assert all(value >= 0 for value in found.values())
    assert all(found[what] > 0 for what in _SAID.get(scenario, ()))


@pytest.mark.postgres
@pytest.mark.parametrize("scenario", ["filled", "start", "grpc"])
def test_a_small_scenario_is_played_on_postgres(scenario: str, tmp_path: Path) -> None:
    found = _played(tmp_path, scenario, "--setup", "postgres", "--size", "300", "--seconds", "0.3")

    assert all(value >= 0 for value in found.values())
