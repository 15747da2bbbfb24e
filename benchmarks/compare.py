"""Several runs of one workload, in turn against a server and the ceiling.

The speed of a shared machine varies. Runs that are compared therefore follow each other directly, and a ratio is that
of two neighbours. The report shows the least, the middle and the greatest of several.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final

import msgspec
import uvloop

from benchmarks.failure import BenchmarkFailed
from benchmarks.load.grpc_run import GrpcRun
from benchmarks.load.measurement import Measurement
from benchmarks.load.run import Run
from benchmarks.load.transfers import Transfers
from benchmarks.load.window import OnProgress, silent
from benchmarks.load.workload import PAYLOAD_BYTES_MIN, Workload
from benchmarks.servers.processes import Process
from benchmarks.servers.started import Scheme, Started
from twophase.core.errors import ConfigurationError
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError

_RUNS_MAX: Final = 3
"""Bound on the runs of one measurement in which no message ends."""
API_PATH: Final = "/api/dtmsvr"

OnStep = Callable[[str, float, int], None]
"""Called with the name of the run, its passed seconds, and the messages delivered."""


class Spread(msgspec.Struct, frozen=True):
    """The least, the middle and the greatest of several figures."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """Return the spread of at least one figure.

        >>> Spread.of([3, 1, 2])
        Spread(low=1, middle=2, high=3)
        """
        return cls(min(figures), statistics.median(figures), max(figures))


class Comparison(msgspec.Struct, frozen=True):
    """The runs against one server and, beside each, one against the ceiling.

    Without ceilings there is no ratio.
    """

    name: str
    runs: list[Measurement]
    ceilings: list[Measurement]
    ceiling_name: str = "null"

    @property
    def ratio(self) -> Spread | None:
        """Return throughput as a share of the ceiling's, of neighbouring runs."""
        pairs = zip(self.runs, self.ceilings, strict=False)
        ratios = [one.per_second / other.per_second for one, other in pairs if other.messages]
        return Spread.of(ratios) if ratios else None

    @property
    def cpu_ratio(self) -> Spread | None:
        """Return the ceiling's CPU a message as a share of the server's.

        It is `ratio` as if only CPU were scarce. Other programs disturb it less than they disturb throughput.
        """
        pairs = zip(self.runs, self.ceilings, strict=False)
        ratios = [other.cpu_us_per_message / one.cpu_us_per_message for one, other in pairs if one.cpu_us_per_message]
        return Spread.of(ratios) if ratios else None

    @property
    def kept(self) -> bool:
        """Return whether no run lost a message or called a branch too early."""
        return all(run.findings.kept for run in self.runs)


def measure(
    server_url: str,
    workload: Workload,
    processes: Sequence[Process] = (),
    on_step: OnStep | None = None,
    name: str = "",
) -> Measurement:
    """Run once, in an event loop of its own.

    A run in which no message ended says nothing of a rate. It is made again, each time twice as long.

    Raises:
        ConfigurationError: the URL or the workload cannot be used.
        BenchmarkFailed: the server cannot be reached, or every request fails, or no message ends in any of the runs.
    """
    scheme, _, rest = server_url.partition("://")
    kind, url = (GrpcRun, f"http://{rest}") if scheme == Scheme.GRPC else (Run, api_url(server_url))
    try:
        address = parse_address(url)
    except HttpError as error:
        remedy = "Write http://host:port, or grpc://host:port."
        raise ConfigurationError(f"--server {server_url}: {error}.", remedy=remedy) from error
    for longer in range(_RUNS_MAX):
        seconds = workload.seconds * 2**longer
        timed = msgspec.structs.replace(workload, seconds=seconds)
        found = _run(kind(address, timed, _told(on_step, name)).measure(processes))
        if found.messages:
            return found
    seconds = workload.seconds * 2 ** (_RUNS_MAX - 1)
    raise BenchmarkFailed(f"no message ended in {seconds:g} s", remedy="Measure longer, or on a machine that is free.")


def _told(on_step: OnStep | None, name: str) -> OnProgress:
    if on_step is None:
        return silent
    on_step(name, 0.0, 0)  # a run begins: on a busy machine its first report may be its last
    return partial(on_step, name)


def _run(work: Coroutine[None, None, Measurement]) -> Measurement:
    """Run to its end in an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def api_url(server_url: str) -> str:
    """Return the address of the dtm API of a server; a given path is kept.

    >>> api_url("http://localhost:36789"), api_url("http://host/dtm/api/")
    ('http://localhost:36789/api/dtmsvr', 'http://host/dtm/api/')
    """
    host = server_url.partition("://")[2].partition("?")[0]
    return server_url if "/" in host.rstrip("/") else server_url.rstrip("/") + API_PATH


def alternate(
    servers: Sequence[Started],
    ceiling: Started | None,
    workload: Workload,
    rounds: int,
    on_step: OnStep | None = None,
) -> list[Comparison]:
    """Run each server `rounds` times, each time directly before the ceiling.

    So a server that does not answer is reported at once.
    """
    comparisons = [Comparison(server.name, [], []) for server in servers]
    for _ in range(rounds):
        for server, comparison in zip(servers, comparisons, strict=True):
            comparison.runs.append(measure(server.url, workload, server.processes, on_step, server.name))
            if ceiling is not None:
                beside = measure(ceiling.url, workload, ceiling.processes, on_step, ceiling.name)
                comparison.ceilings.append(beside)
    return comparisons


def alternate_transfers(
    server: Started, business_url: str, workload: Workload, rounds: int, on_step: OnStep | None = None
) -> Comparison:
    """Run the transfers `rounds` times.

    Each time they follow the business transactions alone directly.
    """
    workload = msgspec.structs.replace(workload, payload_bytes=PAYLOAD_BYTES_MIN)
    comparison = Comparison(f"transfers, {server.name}", [], [], "business transaction alone")
    for _ in range(rounds):

        def transfers(name: str) -> Transfers:
            return Transfers(workload, business_url, server.processes, _told(on_step, name))

        comparison.ceilings.append(_run(transfers("alone").alone()))
        comparison.runs.append(_run(transfers("transfers").with_messages(server.url)))
    return comparison
