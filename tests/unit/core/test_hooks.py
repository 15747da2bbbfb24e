"""Time and chance come from outside: whatever has the right shape will do."""

from __future__ import annotations

from twophase.core import hooks


class _Standing:
    def now_ms(self) -> int:
        return 42


def _read(clock: hooks.Clock, chance: hooks.Chance) -> tuple[int, float]:
    return clock.now_ms(), chance()


def test_a_test_may_own_time_and_chance() -> None:
    assert _read(_Standing(), lambda: 0.5) == (42, 0.5)
