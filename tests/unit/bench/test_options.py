"""The options of `benchmarks.load`.

Options that would change nothing are refused; broken promises end with exit code 4.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from benchmarks.command import app
from benchmarks.scenarios.catalogue import SCENARIOS, Entry
from benchmarks.scenarios.figure import Figure, Stage


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """The command has a handler of its own, for its own process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("--scenario", "stalled", "--server", "http://127.0.0.1:9"), "--scenario stalled: --server"),
        (
            ("--scenario", "stalled", "--rate", "9", "--connections", "4"),
            "--scenario stalled: --connections, --rate",
        ),
        (("--scenario", "start", "--plots", "."), "--scenario start: --plots"),
        (("--scenario", "start", "--seconds", "5"), "--scenario start: --seconds"),
        (("--scenario", "latency", "--no-ratio"), "--scenario latency: --ratio/--no-ratio"),
        (("--scenario", "memory", "--size", "9"), "--scenario memory: --size"),
        (
            ("--scenario", "sdk", "--setup", "sqlite", "--seconds", "1", "--directory", "."),
            "--scenario sdk: --setup, --seconds, --directory",
        ),
        (("--scenario", "list", "--json", "x.json"), "--scenario list: --json"),
        (("--setup", "postgres", "--mode", "app", "--rate", "200"), "--mode app: --rate"),
        (("--setup", "postgres", "--mode", "app", "--payload", "28"), "--mode app: --payload"),
        (("--setup", "postgres", "--mode", "app", "--branches", "2", "--size", "9"), "--mode app: --branches, --size"),
        (("--setup", "sqlite", "--database", "postgresql://127.0.0.1/business"), "--mode pair: --database"),
        (("--null", "--size", "9"), "--mode pair: --size"),
    ],
)
def test_what_would_change_nothing_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], refused: str
) -> None:
    _measure_nothing(monkeypatch)
    done = _bench(*arguments)

    assert done.exit_code == 1
    assert done.stderr.startswith(f"TP-7000: {refused} would change nothing.")


def _measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure nothing: options that are not refused begin no load of minutes."""
    for name, entry in SCENARIOS.items():
        monkeypatch.setitem(SCENARIOS, name, msgspec.structs.replace(entry, play=lambda _stage: []))
    monkeypatch.setattr("benchmarks.command._measured", lambda *_: [])


def test_a_scenario_that_is_none_is_reported_in_one_line() -> None:
    done = _bench("--scenario", "sdkk", "--setup", "sqlite")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("TP-7000: --scenario sdkk: there is no such scenario.")


def _scenario(monkeypatch: pytest.MonkeyPatch, *figures: Figure) -> list[Stage]:
    """Plays nothing, and finds these; what it was played on."""
    played: list[Stage] = []

    def play(stage: Stage) -> list[Figure]:
        played.append(stage)
        return list(figures)

    monkeypatch.setitem(SCENARIOS, "planted", Entry(play, ""))
    return played


def test_a_scenario_takes_setup_size_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    played = _scenario(monkeypatch)
    done = _bench("--scenario", "planted", "--setup", "postgres", "--size", "7", "--seconds", "0.5")

    assert done.exit_code == 0
    assert [(stage.kind, stage.size, stage.seconds) for stage in played] == [("postgres", 7, 0.5)]


def test_a_scenario_that_lost_a_message_ends_with_4_when_everything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _scenario(monkeypatch, Figure("p99", 9.0, "ms", 2.0), Figure("others lost", 1, "messages", 0))
    done = _bench("--scenario", "planted", "--json", str(tmp_path / "figures.json"))

    assert done.exit_code == 4
    assert "A promise was not kept: others lost" in done.stdout
    assert [one["what"] for one in json.loads((tmp_path / "figures.json").read_text())["figures"]] == [
        "p99",
        "others lost",
    ]


def test_a_scenario_that_misses_other_bars_ends_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, few = Figure("p99", 9.0, "ms", 2.0), Figure("retries", 0, "calls", 1, at_least=True)
    _scenario(monkeypatch, slow, few, Figure("lost", 0, "messages", 0))

    assert _bench("--scenario", "planted").exit_code == 0
