"""One scrape for all workers.

A scrape that reaches any worker shows the figures of every one. Each worker answers at a socket of its own in the
supervisor's folder. The worker that is scraped asks the others, and adds up gauges. What describes the store is the
same at each, and is shown once; what describes a node has a label `worker`. A worker that does not answer in time is
missing from the sums, and `twophase_workers` says how many are in them.

Promise: no counter falls but by the restart of its worker. So counters and histograms are not added up, but have the
label `worker`, too: a sum would fall with each worker that is silent or began anew, and Prometheus would count its next
rise as new events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_ANSWER_S: Final = 1.0
_SCRAPE_BYTES_MAX: Final = 8 * 1024 * 1024
_PIECE_BYTES: Final = 65_536
_OF_THE_STORE: Final = frozenset(
    {
        *("twophase_messages", "twophase_oldest_prepared_seconds", "twophase_oldest_undelivered_seconds"),
        *("twophase_history_horizon_seconds", "twophase_oldest_history_seconds", "python_info"),
        *("twophase_queue_kept_messages", "twophase_queue_kept_bytes"),
        *("twophase_queue_bytes_max", "twophase_queue_over_bytes"),
        "twophase_anonymous",
    }
)
"""Shown once: the largest, as a worker that has not cleaned yet shows 0."""
_LEAST: Final = frozenset({"twophase_ready", "twophase_store_up", "process_start_time_seconds"})
_OF_A_NODE: Final = frozenset({"twophase_node", "twophase_node_epoch"})
_THAT_COUNT: Final = frozenset({"counter", "histogram", "summary"})

Scrape = Callable[[], Awaitable[bytes]]


class MetricsExchange:
    """A worker's part in the scrapes of all.

    Arguments:
        folder: of the sockets.
        number: this worker's.
    """

    def __init__(self, folder: str, number: int) -> None:
        self._folder = Path(folder)
        self.number = number
        self._server: asyncio.Server | None = None

    async def start(self, scrape: Scrape) -> None:
        """Answer the other workers by `scrape`, the figures of this one."""

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                writer.write(await scrape())
                await writer.drain()
            writer.close()

        path = self._folder / str(self.number)
        path.unlink(missing_ok=True)  # of the worker that was this one before
        self._server = await asyncio.start_unix_server(answer, path)

    async def stop(self) -> None:
        """Answer no more. Safe to call twice."""
        if self._server is not None:
            self._server.close()
            (self._folder / str(self.number)).unlink(missing_ok=True)

    async def of_all(self, own: bytes) -> bytes:
        """Return one scrape, of this worker's and those of all others that answer in time."""
        numbers = [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]
        others = sorted(set(numbers) - {self.number})
        answers = await asyncio.gather(*(self._ask(number) for number in others))
        scrapes = {self.number: own}
        scrapes.update((number, text) for number, text in zip(others, answers, strict=True) if text)
        return merged({number: text.decode() for number, text in sorted(scrapes.items())})

    async def _ask(self, number: int) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._folder / str(number))
                try:
                    text = b""
                    while piece := await reader.read(_PIECE_BYTES):
                        text += piece
                        if len(text) > _SCRAPE_BYTES_MAX:
                            return b""
                    return text
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return b""


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def merged(scrapes: dict[int, str]) -> bytes:
    """Return one scrape of the workers' own, by their numbers.

    >>> text = "# TYPE twophase_active gauge\\ntwophase_active {}\\n"
    >>> print(merged({1: text.format(3), 2: text.format(4)}).decode().splitlines()[2])
    twophase_active 7.0
    """
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for number, text in scrapes.items():
        for family in text_string_to_metric_families(text):
            known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            found = values.setdefault(known.name, {})
            named = {"worker": str(number)} if known.name in _OF_A_NODE or known.type in _THAT_COUNT else {}
            for sample in family.samples:
                labels = dict(sample.labels) | named
                key = (sample.name, tuple(labels.items()))
                found[key] = _together(known.name, found.get(key), sample.value)
    for name, family in families.items():
        for (sample_name, pairs), value in values[name].items():
            family.add_sample(sample_name, dict(pairs), value)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(families.values()))
    return generate_latest(registry)


def _together(name: str, before: float | None, value: float) -> float:
    if before is None:
        return value
    if name in _OF_THE_STORE:
        return max(before, value)
    return min(before, value) if name in _LEAST else before + value
