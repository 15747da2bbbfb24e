"""One figure of a scenario, and the stage on which a scenario is played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import uvloop

from benchmarks.compare import Spread, api_url
from benchmarks.load.measurement import Measurement
from twophase.http_client.address import Address, parse_address

T = TypeVar("T")
_ROUNDS: Final = 3
_BRIEF_S: Final = 1.0
_WARMUP_S: Final = 1.0


class Figure(msgspec.Struct, frozen=True):
    """A measured value, and the bar it should reach, if it has one."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = False
    spread: Spread | None = None
    """The spread of several runs, where the scenario itself makes several."""

    @property
    def reached(self) -> bool | None:
        """Return whether the bar is reached; None without one.

        >>> Figure("throughput", 0.5, "of null", 0.45, at_least=True).reached, Figure("p99", 3, "ms", 2).reached
        (True, False)
        """
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def broken(self) -> bool:
        """Return whether a promise was broken.

        A bar of at most 0 is a promise: nothing lost, nothing too early.

        >>> Figure("lost", 1, "messages", 0).broken, Figure("lost", 0, "messages", 0).broken
        (True, False)
        >>> Figure("p99", 3, "ms", 2).broken
        False
        """
        return self.bar == 0 and not self.at_least and self.value > 0

    def bar_text(self) -> str:
        """Return the bar as text for people."""
        return "" if self.bar is None else f"{'≥' if self.at_least else '≤'} {self.bar:g}"


class Stage(msgspec.Struct, frozen=True):
    """The stage on which a scenario is played.

    `kind` is the store, `size` the number of messages or rows (0: the scenario's own), `seconds` the duration of a
    timed part (0: its own). `tell` is called with a text that describes the current step.
    """

    kind: str
    tell: Callable[[str], None]
    size: int = 0
    seconds: float = 0.0
    directory: Path | None = None

    @property
    def rounds(self) -> int:
        """Return the number of runs of each side of a comparison.

        It is one where a run is too short to show more than that it works.
        """
        return 1 if 0 < self.seconds < _BRIEF_S else _ROUNDS

    @property
    def warmup_s(self) -> float:
        """Return the seconds of warm-up; at most those that are measured."""
        return min(_WARMUP_S, self.seconds or _WARMUP_S)


def lost_or_early(runs: Sequence[Measurement]) -> Figure:
    """Return the figure of lost and too early messages, which must be 0."""
    return Figure("lost or too early", sum(run.findings.lost + run.findings.early for run in runs), "messages", 0)


Scenario = Callable[[Stage], list[Figure]]


def play(work: Coroutine[Any, Any, T]) -> T:
    """Run asynchronous work in an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def api(url: str) -> Address:
    """Return the address of a started server's API."""
    return parse_address(api_url(url))
