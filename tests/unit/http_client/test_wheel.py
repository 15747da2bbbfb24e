"""Deadlines on a loop whose time the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from twophase.http_client.wheel import Slot, TimeoutWheel


class _Timer:
    def __init__(self, at_s: float, callback: Callable[[], object]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Loop:
    """The part of an event loop that the wheel uses."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.timers: list[_Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, callback: Callable[[], object]) -> Any:
        self.timers.append(_Timer(at_s, callback))
        return self.timers[-1]

    def advance(self, until_s: float) -> None:
        while True:
            self.timers = [timer for timer in self.timers if not timer.cancelled]
            due = min(self.timers, key=lambda timer: timer.at_s, default=None)
            if due is None or due.at_s > until_s:
                break
            self.timers.remove(due)
            self.now_s = max(self.now_s, due.at_s)
            due.callback()
        self.now_s = max(self.now_s, until_s)


class _Entry:
    def __init__(self, loop: _Loop, then: Callable[[], object] = lambda: None) -> None:
        self.loop = loop
        self.then = then
        self.fired_s: list[float] = []

    def on_timeout(self) -> None:
        self.fired_s.append(self.loop.now_s)
        self.then()


def _wheel(tick_ms: int = 50) -> tuple[_Loop, TimeoutWheel]:
    loop = _Loop()
    return loop, TimeoutWheel(cast("asyncio.AbstractEventLoop", loop), tick_ms=tick_ms)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5000), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([10, 50, 100]),
)
def test_every_deadline_passes_once_never_early_and_at_most_two_ticks_late(
    plan: list[tuple[int, int, bool]], tick_ms: int
) -> None:
    loop, wheel = _wheel(tick_ms)
    begun_s = loop.now_s
    expected = []
    for start_ms, timeout_ms, forgotten in sorted(plan):
        loop.advance(begun_s + start_ms / 1000)
        entry = _Entry(loop)
        slot = wheel.add(entry, timeout_ms)
        if forgotten:
            slot.discard(entry)
        expected.append((entry, None if forgotten else begun_s + (start_ms + timeout_ms) / 1000))
    loop.advance(begun_s + 100)
    for entry, deadline_s in expected:
        if deadline_s is None:
            assert entry.fired_s == []
        else:
            (fired_s,) = entry.fired_s
            assert deadline_s - 1e-6 <= fired_s <= deadline_s + 2 * tick_ms / 1000 + 1e-6
    assert not wheel.running
    assert len(wheel) == 0


def test_the_timer_runs_only_while_something_waits() -> None:
    loop, wheel = _wheel()
    assert not wheel.running
    entry = _Entry(loop)
    wheel.add(entry, 100)
    assert wheel.running
    assert len(wheel) == 1
    loop.advance(1001)
    assert entry.fired_s
    assert not wheel.running
    assert loop.timers == []


def test_a_forgotten_deadline_stops_the_timer_at_the_next_tick() -> None:
    loop, wheel = _wheel()
    entry = _Entry(loop)
    wheel.add(entry, 600_000).discard(entry)
    loop.advance(1000.2)
    assert not wheel.running


def test_a_loop_that_was_blocked_visits_every_slot_it_missed() -> None:
    loop, wheel = _wheel()
    entries = [_Entry(loop) for _ in range(20)]
    for number, entry in enumerate(entries):
        wheel.add(entry, 40 * number + 1)
    loop.now_s += 30
    loop.advance(loop.now_s)
    assert all(len(entry.fired_s) == 1 for entry in entries)


def test_one_deadline_may_forget_another_of_the_same_slot() -> None:
    loop, wheel = _wheel()
    pair: list[_Entry] = []
    slots: list[Slot] = []

    def forget_both() -> None:
        for slot, entry in zip(slots, pair, strict=True):
            slot.discard(entry)

    pair.extend(_Entry(loop, forget_both) for _ in range(2))
    slots.extend(wheel.add(entry, 100) for entry in pair)
    assert slots[0] is slots[1]
    loop.advance(1001)
    assert sum(len(entry.fired_s) for entry in pair) == 1


def test_a_deadline_may_set_another() -> None:
    loop, wheel = _wheel()
    second = _Entry(loop)
    first = _Entry(loop, lambda: wheel.add(second, 1))
    wheel.add(first, 100)
    loop.advance(1001)
    assert len(first.fired_s) == len(second.fired_s) == 1
    assert second.fired_s[0] > first.fired_s[0]


def test_after_stop_nothing_passes() -> None:
    loop, wheel = _wheel()
    entries = [_Entry(loop, wheel.stop) for _ in range(3)]
    for entry in entries:
        wheel.add(entry, 100)
    loop.advance(1001)
    assert sum(len(entry.fired_s) for entry in entries) == 1
    assert not wheel.running
