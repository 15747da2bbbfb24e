"""A target, and its play: some examples in a test, or many for a given time."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

ROUND: Final = 150
"""Examples of one target before the next has its turn."""

_FAILURES_KEPT_MAX: Final = 5
_TEXT_MAX: Final = 3_000


class Target(msgspec.Struct, frozen=True):
    """A target: `check` fails on a case that is answered wrongly."""

    name: str
    cases: st.SearchStrategy[Any]
    check: Callable[[Any], None]


class Tally(msgspec.Struct):
    """The results of a play."""

    name: str
    cases: int = 0
    seconds: float = 0.0
    failures: int = 0
    texts: list[str] = []


def play(
    target: Target, examples: int, *, tally: Tally | None = None, seed: int | None = None, shrink: bool = True
) -> Tally:
    """Play `examples` cases, counted in `tally`.

    Raises the error of the first wrong one, made as small as possible.
    """
    counts = tally or Tally(target.name)

    def counted(case: Any) -> None:
        counts.cases += 1
        target.check(case)

    test = hypothesis.given(case=target.cases)(counted)
    test = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )(test)
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    test()
    return counts


def play_for(
    targets: Sequence[Target], seconds: float, after_each: Callable[[], None], tell: Callable[[str], None]
) -> list[Tally]:
    """Play all targets in turn until the time is up.

    A failure is kept, and the play continues.
    """
    tallies = [Tally(target.name) for target in targets]
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        for target, tally in zip(targets, tallies, strict=True):
            began_s, seed = time.monotonic(), random.randrange(2**32)
            try:
                play(target, ROUND, tally=tally, seed=seed, shrink=False)
                after_each()
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is what was looked for
                tally.failures += 1
                if len(tally.texts) < _FAILURES_KEPT_MAX:
                    tally.texts.append(f"seed {seed}: {''.join(traceback.format_exception_only(error))[:_TEXT_MAX]}")
                    tell(f"{target.name}: {tally.texts[-1]}")
            tally.seconds += time.monotonic() - began_s
        tell(", ".join(f"{tally.name} {tally.cases:,}" for tally in tallies))
    return tallies
