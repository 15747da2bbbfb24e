"""`python -m benchmarks.load` as a person runs it.

Real processes run; the table, the file and the exit code are compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.started import null_server
from tests.integration.bench.command import ENVIRONMENT, bench
from tests.servers.missing import not_to_be_had


def _short(*arguments: str) -> tuple[str, ...]:
    return (*arguments, "--seconds", "0.5", "--warmup", "0.2", "--connections", "8")


def test_sqlite_is_set_up_measured_beside_null_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    data = tmp_path / "data"
    data.mkdir()

    done = bench(*_short("--setup", "sqlite", "--directory", str(data), "--json", str(file), "--plots", str(tmp_path)))

    assert done.returncode == 0, done.stderr
    assert "part of null" in done.stdout
    found: dict[str, Any] = json.loads(file.read_text())["comparisons"][0]
    run = found["runs"][0]
    assert run["findings"]["delivered"] == run["findings"]["begun"] > 0
    assert (run["findings"]["lost"], run["findings"]["duplicates"], run["findings"]["errors"]) == (0, 0, {})
    assert found["ratio"]["middle"] > 0
    assert {usage["name"] for usage in run["usage"]} == {"generator + sink", "server"}
    assert all(usage["cpu_us_per_message"] > 0 and usage["memory_mb"] > 5 for usage in run["usage"])
    assert list(data.iterdir()) == []
    assert (tmp_path / "throughput.svg").exists()


def test_a_server_that_runs_is_measured_with_several_branches_and_a_larger_payload(tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    with null_server() as server:
        workload = ("--branches", "3", "--payload", "2000", "--no-ratio", "--json", str(file))
        done = bench(*_short("--server", server.url, *workload))

    assert done.returncode == 0, done.stderr
    run = json.loads(file.read_text())["comparisons"][0]["runs"][0]
    assert (run["workload"]["branches"], run["workload"]["payload_bytes"]) == (3, 2000)
    assert run["findings"]["delivered"] == run["findings"]["begun"] > 0
    assert (run["findings"]["lost"], run["findings"]["foreign"], run["findings"]["errors"]) == (0, 0, {})
    assert "server" in {usage["name"] for usage in run["usage"]}


def test_several_rates_are_run_in_turn_and_drawn_beside_each_other(tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    with null_server() as server:
        rates = ("--rate", "100", "--rate", "300", "--no-ratio", "--json", str(file), "--plots", str(tmp_path))
        done = bench(*_short("--server", server.url, *rates))

    assert done.returncode == 0, done.stderr
    runs = [comparison["runs"][0] for comparison in json.loads(file.read_text())["comparisons"]]
    assert [run["workload"]["rate"] for run in runs] == [100, 300]
    assert [line[:6] for line in done.stdout.splitlines()[:2]] == ["… 1 of", "… 2 of"]
    assert "server p99" in (tmp_path / "latency-against-rate.svg").read_text()


def test_a_terminal_shows_a_bar_while_it_runs() -> None:
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        not_to_be_had("a terminal", f"this system has none to give: {error}")
    command = [sys.executable, "-m", "benchmarks.load", *_short("--null")]
    environment = {**ENVIRONMENT, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as done:
        os.close(theirs)
        shown = b""
        # The terminal's end is an error to read from once nobody has the other end open.
        with contextlib.suppress(OSError):
            while read := os.read(ours, 65_536):
                shown += read
        os.close(ours)

    assert done.returncode == 0, shown.decode()
    assert "━" in shown.decode()
    assert " msg/s" in shown.decode()
    assert "… 1 of" not in shown.decode()


def test_null_alone_is_measured() -> None:
    done = bench(*_short("--null", "--rate", "200"))

    assert done.returncode == 0, done.stderr
    assert "whole message" in done.stdout
    assert "part of null" not in done.stdout


def test_sqlite_is_measured_over_grpc_beside_null(tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    done = bench(*_short("--setup", "sqlite", "--protocol", "grpc", "--json", str(file)))

    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(file.read_text())["comparisons"][0]
    for run in (found["runs"][0], found["runs_beside"][0]):
        assert run["findings"]["delivered"] == run["findings"]["begun"] > 0
        assert (run["findings"]["lost"], run["findings"]["duplicates"], run["findings"]["errors"]) == (0, 0, {})
        assert {"prepare", "submit", "submit → branch"} <= set(run["latencies"])
    assert found["ratio"]["middle"] > 0


@pytest.mark.parametrize("mode", ["submit", "prepare"])
def test_a_part_of_a_message_is_measured_over_grpc(mode: str) -> None:
    done = bench(*_short("--null", "--protocol", "grpc", "--mode", mode))

    assert done.returncode == 0, done.stderr
    assert "errors / unanswered" in done.stdout


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["pair", "app"])
def test_postgres_is_set_up_measured_and_removed(tmp_path: Path, mode: str) -> None:
    done = bench(*_short("--setup", "postgres", "--mode", mode, "--json", str(tmp_path / "result.json")))

    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "result.json").read_text())["comparisons"][0]["runs"][0]
    assert run["findings"]["delivered"] > 0
    assert run["findings"]["lost"] == 0
    assert "database" in {usage["name"] for usage in run["usage"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--server", "http://127.0.0.1:9"), "TP-9000: no connection to http://127.0.0.1:9"),
        (("--server", "http://no.such.host.invalid"), "TP-9000: no way to http://no.such.host.invalid:80"),
        (("--server", "ftp://127.0.0.1"), "TP-7000: --server ftp://127.0.0.1: bad_url"),
        (("--server", "grpc://127.0.0.1:9"), "TP-9000: no connection to grpc://127.0.0.1:9: ["),
        (
            ("--server", "http://127.0.0.1:9", "--protocol", "grpc"),
            "TP-7000: --server http://127.0.0.1:9: no gRPC port.",
        ),
        (("--setup", "sqlite", "--protocol", "grpc", "--mode", "app"), "TP-7000: --mode app: over HTTP only."),
        (("--setup", "oracle"), "TP-7000: --setup oracle: sqlite or postgres is possible."),
        (("--setup", "sqlite", "--payload", "3"), "TP-7000: --payload 3: from 22 to"),
        (("--null", "--setup", "sqlite"), "TP-7000: bench: what is to be measured?"),
        ((), "TP-7000: bench: what is to be measured?"),
    ],
)
def test_what_cannot_be_measured_is_one_clear_line(arguments: tuple[str, ...], said: str) -> None:
    done = bench(*arguments)

    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_another_kind_of_server_is_reported_as_such(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other:
        try:
            assert other.stdout is not None
            port = other.stdout.readline().split(" port ")[1].split()[0]
            done = bench("--server", f"http://127.0.0.1:{port}", "--no-ratio", "--connections", "4")
        finally:
            other.terminate()

    assert done.returncode == 1
    assert done.stderr.startswith("TP-9000: every request fails: prepare: ")


def test_scenarios_are_listed() -> None:
    done = bench("--scenario", "list")

    assert done.returncode == 0
    assert "abandoned" in done.stdout
