"""Every scenario, small, plays to its end.

The event that it measures has happened, and nothing was lost. The speed of a small one means nothing, so no other bar
is compared here.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from benchmarks.scenarios.catalogue import SCENARIOS
from benchmarks.scenarios.figure import Stage
from benchmarks.servers import setups
from benchmarks.servers.setups import Store
from tests.servers.postgres import PostgresServer
from twophase.core.errors import ConfigurationError

_SMALL = {
    "latency": (100, 0.5),
    "grpc": (8, 0.3),
    "rocketmq": (20, 0.3),
    "sdk": (200, 0.0),
    "filled": (200, 0.3),
    "cleaning": (160_000, 0.2),
    "abandoned": (100, 1.0),
    "receiver-down": (100, 0.2),
    "sizes": (2, 0.3),
    "memory": (0, 0.3),
    "start": (500, 0.0),
    "stalled": (400, 0.3),
    "checks": (0, 0.3),
    "crossing": (0, 0.3),
    "floods": (3, 0.3),
}
"""Size and seconds of each."""
_WAITING = ("abandoned", "receiver-down", "stalled")
"""These wait for nearly all of their time, so they are played at once."""
_NODES = ("crossing",)
"""These have two nodes, so they need PostgreSQL."""
_ALONE = [name for name in SCENARIOS if name not in (*_WAITING, *_NODES)]
_SAID = {
    "latency": ("100 msg/s: prepare, p50", "100 msg/s: submit → branch, p99", "100 msg/s: one flush, on average"),
    "grpc": ("over gRPC: messages", "one commit a call: messages", "nothing kept: messages"),
    "rocketmq": (
        "half + commit: part of grpcio's echo",
        "half + commit: part of our code's echo",
        "half + commit, 32 in flight, synced",
        "with a push consumer: end to end",
        "20 orphans: delivered after due, the last",
        "memory, idle",
    ),
    "sdk": (
        "SDK, async, 32 at a time: CPU of prepare + submit",
        "SDK, sync: CPU of prepare + submit",
        "SDK, sync, 32 threads: CPU of prepare + submit",
    ),
    "filled": ("throughput, empty database", "throughput, 200 live and 1,000 finished messages"),
    # On a busy machine a run of 0.2 s may lie between two batches. The scenario itself fails where nothing is removed.
    "cleaning": ("throughput beside a cleaning", "throughput beside a cleaning that is behind"),
    "abandoned": (),  # on a busy machine the last is decided before the generator, which hears later, calls it due
    "receiver-down": ("all delivered after return",),
    "sizes": ("1024 KiB: messages", "63 branches: messages", "memory, highest"),
    "memory": ("memory, idle", "throughput meanwhile"),
    "start": (
        "start to ready, empty",
        "start to ready, 500 live messages, 250 of them submitted and due",
        "the due ones, all delivered after ready",
    ),
    "checks": ("with tokens and signatures: messages", "without: messages"),
    "crossing": ("the other node: messages", "the same node: messages"),
    "floods": (
        "unfinished bodies: another client's messages at their receiver",
        "unfinished gRPC calls: another client's messages at their receiver",
        "answers that never end: another client's messages at their receiver",
    ),
    "stalled": ("the other receiver's retries", "delivered after it answers again"),
}
"""Figures that a play in which everything happened has above nothing."""
_PROMISING = [name for name in SCENARIOS if name != "sdk"]
"""Those that say what was lost; the SDK's messages are not delivered anywhere."""


def _is_difference(what: str) -> bool:
    """Return True for a difference of two runs.

    It is less than nothing where other work disturbed the first one.
    """
    return " adds " in what or what.startswith(("a byte", "a branch"))


def _play(scenario: str, kind: str, directory: Path | None) -> None:
    """Play a scenario and compare its report.

    Each figure stands there once, no promise is broken, and nothing is left out.
    """
    size, seconds = _SMALL[scenario]
    figures = SCENARIOS[scenario].play(Stage(kind, lambda _text: None, size, seconds, directory))
    found = {figure.what: figure.value for figure in figures}
    promises = [figure for figure in figures if figure.bar == 0 and not figure.at_least]

    assert len(found) == len(figures)
    assert bool(promises) == (scenario in _PROMISING)
    assert {figure.what: figure.value for figure in promises if figure.broken} == {}
    measured = {what: value for what, value in found.items() if not _is_difference(what)}
    assert {what: value for what, value in measured.items() if value < 0} == {}
    assert {what: found[what] for what in _SAID[scenario] if not found[what] > 0} == {}


def _play_at_once(kind: str, directory: Path) -> None:
    with ThreadPoolExecutor() as pool:
        for playing in [pool.submit(_play, name, kind, directory) for name in _WAITING]:
            playing.result()


@pytest.fixture
def shared_postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a scenario a database of the run's as its own PostgreSQL."""
    numbers = itertools.count()
    made: list[str] = []
    name = secrets.token_hex(6)

    @contextlib.contextmanager
    def store(_parent: Path | None = None) -> Iterator[Store]:
        database = postgres_server.create_database(f"scenario_{name}_{next(numbers)}")
        made.append(database.name)

        def execute(statement: str) -> None:
            with psycopg.connect(database.dsn, autocommit=True) as connection:
                connection.execute(statement.encode())

        yield Store("postgres", database.dsn, execute)

    monkeypatch.setitem(setups.SETUPS, "postgres", store)
    yield
    for name in made:
        postgres_server.drop_database(name)


@pytest.mark.parametrize("scenario", _ALONE)
def test_a_small_scenario_is_played_on_sqlite(scenario: str, tmp_path: Path) -> None:
    _play(scenario, "sqlite", tmp_path)


def test_small_scenarios_of_who_does_not_answer_are_played_on_sqlite(tmp_path: Path) -> None:
    _play_at_once("sqlite", tmp_path)


@pytest.mark.postgres
@pytest.mark.usefixtures("shared_postgres")
@pytest.mark.parametrize("scenario", ["start", "grpc", "rocketmq", *_NODES])
def test_a_small_scenario_is_played_on_postgres(scenario: str, tmp_path: Path) -> None:
    _play(scenario, "postgres", tmp_path)


def test_nodes_share_no_sqlite_file() -> None:
    with pytest.raises(ConfigurationError, match="Choose --setup postgres"):
        _play("crossing", "sqlite", None)


@pytest.mark.postgres
def test_the_full_store_is_played_on_a_postgres_of_its_own() -> None:
    _play("filled", "postgres", None)


@pytest.mark.postgres
@pytest.mark.usefixtures("shared_postgres")
def test_small_scenarios_of_who_does_not_answer_are_played_on_postgres(tmp_path: Path) -> None:
    _play_at_once("postgres", tmp_path)
