"""Throughput with every check, beside a server that knows no client.

One server has tokens and a list of destinations with a key, so each call is signed; another has quotas of three kinds
besides. Their producers give their token in the base URL. The third is a server on loopback without any configuration.
All are measured in turn.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import Final

import msgspec

from benchmarks.compare import API_PATH, Comparison, Spread, measure
from benchmarks.load.measurement import Measurement
from benchmarks.load.workload import Workload
from benchmarks.scenarios.figure import Figure, Stage, lost_or_early
from benchmarks.scenarios.seeds import fresh_stores
from benchmarks.servers.ports import KeptPort
from benchmarks.servers.processes import SERVER_NAME
from benchmarks.servers.setups import Store
from benchmarks.servers.started import Started, directory_on_disk
from benchmarks.servers.tokens import added

SECONDS: Final = 5.0
_BAR: Final = 0.92
_NEVER_REACHED: Final = 1 << 40
_QUOTAS: Final = tuple(f"--{name}={_NEVER_REACHED}" for name in ("requests-per-s", "bytes-stored", "waiting-messages"))
"""Bounds that are counted, and never reached."""


def play_checks(stage: Stage) -> list[Figure]:
    """Play the scenario of the module."""
    kept = KeptPort()  # the receivers of all measurements, one after another, have the same port
    port = kept.number
    workload = Workload(seconds=stage.seconds or SECONDS, warmup_s=stage.warmup_s, receiver_port=port)
    with contextlib.ExitStack() as running:
        plain, signing, metered = fresh_stores(stage, running, 3)
        open_server = running.enter_context(plain.served())
        checked = {
            "with tokens and signatures": _guarded(signing, running, port),
            "with quotas besides": _guarded(metered, running, port, _QUOTAS),
        }
        compared = {name: Comparison(name, [], [], "without") for name in checked}
        stage.tell(f"{stage.rounds} × {workload.seconds:g} s with tokens and signatures, with quotas, and without")
        for _ in range(stage.rounds):
            without = measure(open_server.url, workload, open_server.processes)
            for name, server in checked.items():
                compared[name].ceilings.append(without)
                compared[name].runs.append(measure(server.url, workload, server.processes))
    first, *others = compared.values()
    return [
        *_figures(first, _BAR),
        *_spent("without", first.ceilings),
        *(figure for one in others for figure in _figures(one, None)),
        lost_or_early([*first.ceilings, *(run for one in compared.values() for run in one.runs)]),
    ]


def _guarded(store: Store, running: contextlib.ExitStack, port: int, bounds: tuple[str, ...] = ()) -> Started:
    """Start a server that knows a token and signs its calls; its URL has the token."""
    folder = running.enter_context(directory_on_disk(None))
    tokens, key = folder / "tokens.toml", folder / "key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    token = added(tokens, "bench", ["produce"], *bounds)
    added(tokens, "other", ["observe"])
    destination = {"name": "sink", "url": f"http://127.0.0.1:{port}", "key": f"file:{key}", "key_id": "bench"}
    started = running.enter_context(store.served((f"tokens={tokens}", f"destinations={json.dumps([destination])}")))
    return msgspec.structs.replace(started, url=f"{started.url}/t/{token}{API_PATH}")


def _figures(comparison: Comparison, bar: float | None) -> list[Figure]:
    name, ratio, cheaper = comparison.name, comparison.ratio, comparison.cpu_ratio
    assert ratio is not None, "each run has one beside it"
    assert cheaper is not None, "each run has one beside it"
    return [
        Figure(f"throughput {name}", ratio.middle, "of that without", bar, True, ratio),
        Figure(f"{name}: by CPU of all processes", cheaper.middle, "of that without", spread=cheaper),
        *_spent(name, comparison.runs),
    ]


def _spent(name: str, runs: list[Measurement]) -> list[Figure]:
    rates = Spread.of([run.per_second for run in runs])
    spent = Spread.of([used.cpu_us_per_message for run in runs for used in run.usage if used.name == SERVER_NAME])
    return [
        Figure(f"{name}: messages", rates.middle, "msg/s", spread=rates),
        Figure(f"{name}: CPU of {SERVER_NAME}", spent.middle, "µs a message", spread=spent),
    ]
