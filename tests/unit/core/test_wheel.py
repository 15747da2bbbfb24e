"""Due times on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.wheel import CALLS_MAX, Slot, Wheel


class _Timer:
    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
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

    def call_later(self, pause_s: float, callback: Callable[[], None]) -> _Timer:
        self.timers.append(_Timer(self.now_s + pause_s, callback))
        return self.timers[-1]

    @property
    def waits(self) -> bool:
        """True while a timer is set."""
        return any(not timer.cancelled for timer in self.timers)

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
        self.called_s: list[float] = []

    def on_due(self) -> None:
        self.called_s.append(self.loop.now_s)
        self.then()


def _wheel(width_s: float = 0.05) -> tuple[_Loop, Wheel[_Entry]]:
    loop = _Loop()
    return loop, Wheel(loop.time, _Entry.on_due, loop.call_later, width=width_s)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(-100, 5000), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([0.01, 0.032, 0.05]),
)
def test_every_entry_is_called_once_never_early_and_at_most_a_slot_late(
    plan: list[tuple[int, int, bool]], width_s: float
) -> None:
    loop, wheel = _wheel(width_s)
    begun_s = loop.now_s
    expected = []
    for start_ms, pause_ms, removed in sorted(plan):
        loop.advance(begun_s + start_ms / 1000)
        entry = _Entry(loop)
        slot = wheel.add(entry, loop.now_s + pause_ms / 1000)
        if removed:
            slot.pop(entry)
        expected.append((entry, None if removed else loop.now_s + max(0, pause_ms) / 1000))
    loop.advance(begun_s + 100)
    for entry, due_s in expected:
        if due_s is None:
            assert entry.called_s == []
        else:
            (called_s,) = entry.called_s
            assert due_s - 1e-6 <= called_s <= due_s + width_s + 1e-6
    assert not loop.waits
    assert len(wheel) == 0


def test_timer_runs_only_while_something_waits() -> None:
    loop, wheel = _wheel()
    assert not loop.waits
    entry = _Entry(loop)
    wheel.add(entry, 1000.1)
    assert loop.waits
    assert len(wheel) == 1
    loop.advance(1001)
    assert entry.called_s
    assert not loop.waits


def test_removed_entries_leave_no_timer_behind_the_next_slot() -> None:
    loop, wheel = _wheel()
    for pause_s in range(1, 600):
        entry = _Entry(loop)
        wheel.add(entry, 1000.0 + pause_s).pop(entry)
    loop.advance(1001.1)
    assert not loop.waits


def test_earlier_entry_is_not_held_up_by_a_later_one() -> None:
    loop, wheel = _wheel()
    late, early = _Entry(loop), _Entry(loop)
    wheel.add(late, 1600.0)
    wheel.add(early, 1001.0)
    loop.advance(1001.1)
    assert early.called_s
    assert not late.called_s


def test_loop_that_was_blocked_visits_every_slot_it_missed() -> None:
    loop, wheel = _wheel()
    entries = [_Entry(loop) for _ in range(20)]
    for number, entry in enumerate(entries):
        wheel.add(entry, 1000.001 + number * 0.04)
    loop.now_s += 30
    loop.advance(loop.now_s)
    assert all(len(entry.called_s) == 1 for entry in entries)


def test_one_called_may_remove_another_of_the_same_slot() -> None:
    loop, wheel = _wheel()
    pair: list[_Entry] = []
    slots: list[Slot[_Entry]] = []

    def remove_both() -> None:
        for slot, entry in zip(slots, pair, strict=True):
            slot.pop(entry, None)

    pair.extend(_Entry(loop, remove_both) for _ in range(2))
    slots.extend(wheel.add(entry, 1000.1) for entry in pair)
    assert slots[0] is slots[1]
    loop.advance(1001)
    assert sum(len(entry.called_s) for entry in pair) == 1


def test_one_called_may_add_another() -> None:
    loop, wheel = _wheel()
    second = _Entry(loop)
    first = _Entry(loop, lambda: wheel.add(second, loop.now_s + 0.001))
    wheel.add(first, 1000.1)
    loop.advance(1001)
    assert len(first.called_s) == len(second.called_s) == 1
    assert second.called_s[0] > first.called_s[0]


def test_one_that_raises_is_called_once_and_does_not_hold_up_the_others() -> None:
    loop, wheel = _wheel()

    def fail() -> None:
        raise RuntimeError("a fault")

    entries = [_Entry(loop, fail) for _ in range(3)]
    for entry in entries:
        wheel.add(entry, 1000.1)
    for _ in entries:
        with pytest.raises(RuntimeError):
            loop.advance(1001)
    assert [len(entry.called_s) for entry in entries] == [1, 1, 1]


def test_crowd_due_at_once_is_called_in_several_turns() -> None:
    loop, wheel = _wheel()
    entries = [_Entry(loop) for _ in range(3 * CALLS_MAX)]
    for entry in entries:
        wheel.add(entry, 1000.1)
    loop.now_s += 1
    wheel.tick()
    assert sum(len(entry.called_s) for entry in entries) == CALLS_MAX
    loop.advance(loop.now_s)
    assert all(len(entry.called_s) == 1 for entry in entries)


def test_removed_far_times_leave_no_slots_behind() -> None:
    loop, wheel = _wheel()
    kept = [_Entry(loop) for _ in range(100)]
    for number in range(50_000):
        entry = _Entry(loop)
        wheel.add(entry, 1001.0 + number).pop(entry)
        if number % 500 == 0:
            wheel.add(kept[number // 500], 1001.0 + number)
    assert len(wheel._slots) <= 10_200
    assert sorted(wheel._slots) == sorted(wheel._order)
    loop.advance(60_000)
    assert all(len(entry.called_s) == 1 for entry in kept)


def test_clock_that_was_set_back_calls_nothing_early() -> None:
    loop, wheel = _wheel()
    entry = _Entry(loop)
    wheel.add(entry, 1001.0)
    loop.now_s -= 50
    (timer,) = loop.timers
    timer.callback()
    assert not entry.called_s
    loop.advance(1001.1)
    assert entry.called_s


def test_wheel_that_waits_for_nothing_may_be_stopped() -> None:
    loop, wheel = _wheel()
    wheel.stop()
    assert not loop.timers


def test_after_stop_nothing_is_called() -> None:
    loop, wheel = _wheel()
    entries = [_Entry(loop, wheel.stop) for _ in range(3)]
    for entry in entries:
        wheel.add(entry, 1000.1)
    loop.advance(1001)
    assert sum(len(entry.called_s) for entry in entries) == 1
    wheel.add(_Entry(loop), 1000.1)
    wheel.tick()
    assert not loop.waits
    assert len(wheel) == 0
