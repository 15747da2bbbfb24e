"""Throughput with every check, beside a server that knows no client.

One server has tokens, a list of destinations with a key, and quotas; each call is signed. Its producers give their
token in the base URL. The other is a server on loopback without any configuration. Both are measured in turn.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.compare import API_PATH, Comparison, Spread, measure
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, lost_or_early
from benchmarks.scenarios.seeds import two_stores
from benchmarks.servers.processes import SERVER_NAME
from benchmarks.servers.started import directory_on_disk, free_port

SECONDS: Final = 5.0
_BAR: Final = 0.92
_NUMBER: Final = 1 << 40
"""A bound that is counted, and never reached."""


def play_checks(stage: Stage) -> list[Figure]:
    """Play the scenario of the module."""
    port = free_port()
    workload = Workload(seconds=stage.seconds or SECONDS, warmup_s=stage.warmup_s, receiver_port=port)
    with contextlib.ExitStack() as running:
        plain, guarded = two_stores(stage, running)
        folder = running.enter_context(directory_on_disk(stage.directory))
        token, settings = _guarded(folder, port)
        open_server = running.enter_context(plain.served())
        closed = running.enter_context(guarded.served(settings))
        checked = msgspec.structs.replace(closed, url=f"{closed.url}/t/{token}{API_PATH}")
        comparison = Comparison("with tokens and signatures", [], [], "without")
        stage.tell(f"{stage.rounds} × {workload.seconds:g} s with tokens and signatures, each beside one without")
        for _ in range(stage.rounds):
            comparison.ceilings.append(measure(open_server.url, workload, open_server.processes))
            comparison.runs.append(measure(checked.url, workload, checked.processes))
    return _figures(comparison)


def _guarded(folder: Path, port: int) -> tuple[str, tuple[str, ...]]:
    """Return a token, and the settings of a server that knows it and signs its calls."""
    tokens, key = folder / "tokens.toml", folder / "key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    bounds = [f"--{name}={_NUMBER}" for name in ("requests-per-s", "bytes-stored", "waiting-messages")]
    token = _added(tokens, "bench", "produce", *bounds)
    _added(tokens, "other", "observe")
    destination = {"name": "sink", "url": f"http://127.0.0.1:{port}", "key": f"file:{key}", "key_id": "bench"}
    return token, (f"tokens={tokens}", f"destinations={json.dumps([destination])}")


def _added(tokens: Path, name: str, scope: str, *bounds: str) -> str:
    """Add a client to the file of tokens; return its token."""
    command = [sys.executable, "-m", "twophase", "token", "add", name, "--scope", scope, "--tokens", str(tokens)]
    return subprocess.run([*command, *bounds], check=True, capture_output=True, text=True).stdout.strip()


def _figures(comparison: Comparison) -> list[Figure]:
    ratio, cheaper = comparison.ratio, comparison.cpu_ratio
    assert ratio is not None, "each run has one beside it"
    assert cheaper is not None, "each run has one beside it"
    figures = [
        Figure("throughput with tokens and signatures", ratio.middle, "of that without", _BAR, True, ratio),
        Figure("the same, by CPU of all processes", cheaper.middle, "of that without", spread=cheaper),
    ]
    for name, runs in (("with", comparison.runs), ("without", comparison.ceilings)):
        rates = Spread.of([run.per_second for run in runs])
        spent = Spread.of([used.cpu_us_per_message for run in runs for used in run.usage if used.name == SERVER_NAME])
        figures.append(Figure(f"{name}: messages", rates.middle, "msg/s", spread=rates))
        figures.append(Figure(f"{name}: CPU of {SERVER_NAME}", spent.middle, "µs a message", spread=spent))
    return [*figures, lost_or_early([*comparison.runs, *comparison.ceilings])]
