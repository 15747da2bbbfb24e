"""Time and chance come from outside: any object of the right shape works."""

from __future__ import annotations

import time

from twophase.core import hooks


class _Standing:
    def now_ms(self) -> int:
        return 42


def _read(clock: hooks.Clock, chance: hooks.Chance) -> tuple[int, float]:
    return clock.now_ms(), chance()


def test_a_test_may_own_time_and_chance() -> None:
    assert _read(_Standing(), lambda: 0.5) == (42, 0.5)


def test_the_machines_clock_counts_milliseconds_since_1970() -> None:
    before_s = time.time()
    now_ms = hooks.WallClock().now_ms()
    assert before_s - 1 <= now_ms / 1000 <= time.time() + 1


def test_the_machines_monotonic_clock_counts_milliseconds() -> None:
    before_s = time.monotonic()
    now_ms = hooks.monotonic_ms()
    assert before_s <= now_ms / 1000 <= time.monotonic()
