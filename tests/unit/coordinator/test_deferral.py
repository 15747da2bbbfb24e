"""The times at which deferred messages return."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.coordinator.harness import QUICK, Harness, message
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state import deferral
from twophase.coordinator.state.deferral import DeferralSlots

MakeRig = Callable[..., Awaitable[Harness]]
B = "http://b/in"
GAP_MS = 1_000


def test_two_thousand_five_hundred_come_again_a_second() -> None:
    pace = DeferralSlots()
    times = [pace.pause_ms(1_000) for _ in range(10_000)]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (5_000, 5_000 + 3_999)
    assert max(Counter(times).values()) == 3


def test_nothing_comes_later_than_ten_minutes() -> None:
    pace = DeferralSlots()
    times = [pace.pause_ms(0) for _ in range(1_600_000)]
    assert max(times) == times[-1] == 600_000


@given(st.lists(st.integers(min_value=0, max_value=10**13), max_size=50))
def test_a_clock_that_jumps_changes_no_bound(now_ms: list[int]) -> None:
    pace = DeferralSlots()
    assert all(5_000 <= pace.pause_ms(now) <= 600_000 for now in now_ms)


async def test_messages_that_leave_memory_come_one_behind_the_other(
    make_harness: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferral, "_GAP_MS", GAP_MS)
    harness = await make_harness(
        CoordinatorSettings(delivery=QUICK, in_flight_per_destination_max=1, queue_waiting_max=1, active_max=10)
    )
    harness.destination.hold(B)
    begun_ms = harness.clock.now_ms()
    for number in range(40):
        await harness.submit(message(f"hung{number}", B))
    await harness.settled()
    with closing(sqlite3.connect(harness.path)) as file:
        due = [row[0] for row in file.execute("SELECT due_ms FROM message ORDER BY due_ms")]
    left = [due_ms for due_ms in due if due_ms >= begun_ms + 5_000]
    assert len(left) >= 20, "what finds no place leaves memory"
    assert all(later - earlier > GAP_MS // 2 for earlier, later in pairwise(left)), left
