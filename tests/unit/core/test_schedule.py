"""The backoff grows and is capped; jitter only shortens it within its share (I9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.schedule import CHECK_BACK, DELIVERY, Schedule, whole_seconds

_SCHEDULES = st.builds(
    Schedule,
    first_ms=st.integers(1, 10_000),
    factor=st.integers(1, 10),
    cap_ms=st.integers(1, 100_000),
    jitter=st.floats(0.0, 1.0),
)
_CHANCES = st.floats(0.0, 1.0, exclude_max=True)


@pytest.mark.parametrize("schedule", [DELIVERY, CHECK_BACK], ids=["delivery", "check-back"])
def test_the_defaults_double_from_a_second_up_to_a_minute(schedule: Schedule) -> None:
    pauses_ms = [schedule.pause_ms(attempt, 0.0) for attempt in range(1, 9)]

    assert pauses_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


@given(_SCHEDULES, st.integers(1, 10_000), _CHANCES)
def test_every_pause_lies_between_a_millisecond_and_the_cap(schedule: Schedule, attempt: int, chance: float) -> None:
    assert 1 <= schedule.pause_ms(attempt, chance) <= schedule.cap_ms


@given(_SCHEDULES, st.integers(1, 100))
def test_without_jitter_no_pause_is_shorter_than_the_one_before(schedule: Schedule, attempt: int) -> None:
    assert schedule.pause_ms(attempt, 0.0) <= schedule.pause_ms(attempt + 1, 0.0)


@given(_SCHEDULES, st.integers(1, 100), _CHANCES)
def test_jitter_takes_at_most_its_share(schedule: Schedule, attempt: int, chance: float) -> None:
    whole_ms = schedule.pause_ms(attempt, 0.0)

    assert whole_ms * (1 - schedule.jitter) - 1 <= schedule.pause_ms(attempt, chance) <= whole_ms


def test_a_messages_own_first_pause_replaces_the_default() -> None:
    assert Schedule().starting_at(5_000).pause_ms(2, 0.0) == 10_000


@pytest.mark.parametrize("first_ms", [0, -1, 1_000])
def test_no_own_first_pause_keeps_the_schedule(first_ms: int) -> None:
    schedule = Schedule()

    assert schedule.starting_at(first_ms) is schedule


def test_a_first_pause_above_the_cap_raises_the_cap() -> None:
    assert [Schedule().starting_at(90_000).pause_ms(attempt, 0.0) for attempt in (1, 2)] == [90_000, 90_000]


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_one(attempt: int) -> None:
    with pytest.raises(AssertionError, match="from 1"):
        Schedule().pause_ms(attempt, 0.0)


@pytest.mark.parametrize("chance", [-0.1, 1.0])
def test_chance_is_a_random_number_below_one(chance: float) -> None:
    with pytest.raises(AssertionError, match="chance"):
        Schedule().pause_ms(1, chance)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Schedule(first_ms=0),
        lambda: Schedule(factor=0),
        lambda: Schedule(cap_ms=0),
        lambda: Schedule(jitter=1.1),
        lambda: Schedule(jitter=-0.1),
    ],
    ids=["first_ms", "factor", "cap_ms", "jitter too large", "jitter negative"],
)
def test_a_schedule_that_cannot_work_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(AssertionError):
        make()


@pytest.mark.parametrize(
    ("span_ms", "seconds"), [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (86_400_000, 86_400)]
)
def test_a_span_above_zero_is_never_none_in_whole_seconds(span_ms: int, seconds: int) -> None:
    assert whole_seconds(span_ms) == seconds
