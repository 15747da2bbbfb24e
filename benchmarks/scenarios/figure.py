"""One figure of a scenario, and what a scenario is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import uvloop

from benchmarks.compare import Spread, api_url
from benchmarks.load.measurement import Measurement
from twophase.http_client.address import Address, parse_address

T = TypeVar("T")
_POLL_S: Final = 0.02
_ROUNDS: Final = 3
_BRIEF_S: Final = 1.0
_WARMUP_S: Final = 1.0


class Figure(msgspec.Struct, frozen=True):
    """What was measured, and the bar it should reach, if it has one."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = False
    spread: Spread | None = None
    """Of several runs, where the scenario makes several itself."""

    @property
    def reached(self) -> bool | None:
        """Whether the bar is reached; None without one.

        >>> Figure("throughput", 0.5, "of null", 0.45, at_least=True).reached, Figure("p99", 3, "ms", 2).reached
        (True, False)
        """
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def broken(self) -> bool:
        """Whether a promise was not kept. A bar of none at most is one: nothing lost, nothing too early.

        >>> Figure("lost", 1, "messages", 0).broken, Figure("lost", 0, "messages", 0).broken
        (True, False)
        >>> Figure("p99", 3, "ms", 2).broken
        False
        """
        return self.bar == 0 and not self.at_least and self.value > 0

    def bar_text(self) -> str:
        """The bar for people."""
        return "" if self.bar is None else f"{'≥' if self.at_least else '≤'} {self.bar:g}"


class Stage(msgspec.Struct, frozen=True):
    """What a scenario is played on.

    `kind` is the store, `size` the number of messages or rows (0: the scenario's own), `seconds` how long a timed
    part lasts (0: its own); `tell` is told in words what is going on.
    """

    kind: str
    tell: Callable[[str], None]
    size: int = 0
    seconds: float = 0.0
    directory: Path | None = None

    @property
    def rounds(self) -> int:
        """How often what is compared is run: once where a run is too short to say more than that it works."""
        return 1 if 0 < self.seconds < _BRIEF_S else _ROUNDS

    @property
    def warmup_s(self) -> float:
        """Seconds before what is measured; no longer than that."""
        return min(_WARMUP_S, self.seconds or _WARMUP_S)


def lost_or_early(runs: Sequence[Measurement]) -> Figure:
    """What no run may show."""
    return Figure("lost or too early", sum(run.findings.lost + run.findings.early for run in runs), "messages", 0)


Scenario = Callable[[Stage], list[Figure]]


def play(work: Coroutine[Any, Any, T]) -> T:
    """Run asynchronous work in an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def api(url: str) -> Address:
    """The address of a started server's API."""
    return parse_address(api_url(url))


async def until(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait until something is so; False when it was not so in time."""
    ends_s = time.perf_counter() + within_s
    while not condition():
        if time.perf_counter() > ends_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True
