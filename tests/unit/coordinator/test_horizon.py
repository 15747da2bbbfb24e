"""The messages that hold back the cleaning of receivers' rows.

They are the messages whose branches may have been called (rule 16).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, Harness, message
from twophase.coordinator.operator import Act
from twophase.core.lifecycle import State
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.options import Durability
from twophase.core.redirect import Redirection
from twophase.core.schedule import PAUSE_MS_MAX, Schedule
from twophase.destinations.base import Answer
from twophase.server.settings import Settings
from twophase.stores.batch import Batch, Insert, Reschedule
from twophase.stores.rows import LiveRow

DAY_MS = 24 * 3600 * 1000
YEAR: dict[str, Any] = {"delay_ms": 365 * DAY_MS}
EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK, "explicit_verdict": True}


async def unfinished_ms(harness: Harness) -> int:
    return (await harness.coordinator.horizon("", "")).oldest_unfinished_ms


async def row_of(harness: Harness, gid: str) -> LiveRow:
    row = await harness.store.get(gid)
    assert isinstance(row, LiveRow)
    return row


async def test_a_message_for_next_year_holds_nothing_up_and_one_that_fails_does(harness: Harness) -> None:
    await harness.submit(message("next year", **YEAR))
    harness.clock.advance(40 * DAY_MS)
    assert await unfinished_ms(harness) >= harness.clock.now_ms() - 1_000

    harness.destination.script[IN].append(Answer(500))
    await harness.submit(message("fails", retry_interval_ms=PAUSE_MS_MAX))
    await until(lambda: harness.destination.urls() == [IN])
    await harness.settled()
    row = await row_of(harness, "fails")
    assert row.due_ms > harness.clock.now_ms() + PAUSE_MS_MAX - 60_000
    harness.clock.advance(PAUSE_MS_MAX // 2)
    assert await unfinished_ms(harness) == row.created_ms


@pytest.mark.parametrize("durability", Durability)
async def test_no_act_on_a_message_for_next_year_makes_it_hold_up_more_than_before(
    harness: Harness, durability: Durability
) -> None:
    """A parked message counts, as it may have been called before it was parked.

    After a redrive and a "retry now" it counts as before.
    """
    await harness.submit(message("g", durability=durability, **YEAR))
    row = await row_of(harness, "g")
    harness.clock.advance(40 * DAY_MS)
    operator = harness.coordinator.operator
    assert (await operator.park("g", Act())).error is None
    assert await unfinished_ms(harness) == row.created_ms
    assert (await operator.redrive("g", Act())).error is None
    counts = durability is Durability.CHECK_BACK
    assert (await unfinished_ms(harness) == row.created_ms) is counts
    assert (await operator.retry_now("g", Act())).error is None
    assert (await unfinished_ms(harness) == row.created_ms) is counts
    assert harness.destination.urls() == []


async def test_a_message_called_early_counts_also_when_a_later_submit_brings_a_far_time(harness: Harness) -> None:
    """The first submit is acknowledged and the branch called, then lost by a crash.

    The second submit names a time in a year.
    """
    await harness.prepare(message("g", **EARLY))
    born_ms = (await row_of(harness, "g")).created_ms
    harness.destination.hold(IN)
    await harness.submit(message("g", **EARLY))
    await until(lambda: harness.destination.urls() == [IN])
    await harness.restart()
    del harness.destination.held[IN]

    assert (await harness.submit(message("g", **EARLY, **YEAR))).error is None
    for _ in range(5):
        await harness.settled()
        row = await row_of(harness, "g")
        assert row.state is State.SUBMITTED
        assert harness.clock.now_ms() < row.due_ms <= harness.clock.now_ms() + PAUSE_MS_MAX
        assert await unfinished_ms(harness) == born_ms
        harness.store.batches.clear()
        harness.clock.advance(PAUSE_MS_MAX + 64)
        await until(lambda: bool(harness.store.batches))
    assert harness.destination.urls() == [IN]
    harness.clock.advance(365 * DAY_MS)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, IN]


async def test_a_row_that_falls_due_long_before_its_time_is_given_its_time_again(harness: Harness) -> None:
    """A row may be due too early, whatever wrote it.

    Held in memory alone, it would occupy memory for a year.
    """
    await harness.submit(message("g", **YEAR))
    first_call_ms = (await row_of(harness, "g")).due_ms
    too_early = Reschedule("g", 1, harness.clock.now_ms(), attempts=0, done=0)
    await super(type(harness.store), harness.store).flush(Batch([too_early], []))
    await harness.restart()
    harness.clock.advance(64)
    await until(lambda: bool(harness.store.batches))
    await harness.settled()

    assert abs((await row_of(harness, "g")).due_ms - first_call_ms) < 5_000
    assert await unfinished_ms(harness) >= harness.clock.now_ms() - 1_000
    assert harness.destination.urls() == []


async def test_an_undecided_message_holds_nothing_up_but_its_producers_rows(harness: Harness) -> None:
    harness.destination.script[CHECK].extend([Answer(425)] * 20)
    await harness.prepare(message("g"))
    born_ms = (await row_of(harness, "g")).created_ms
    harness.clock.advance(40 * DAY_MS)
    await harness.settled()

    told = await harness.coordinator.horizon("", "")

    assert told.oldest_undecided_ms == born_ms
    assert abs(told.oldest_unfinished_ms - (harness.clock.now_ms() - BEGIN_DEADLINE_MS.value)) < 5_000


async def test_nothing_younger_than_the_begin_deadline_is_below_the_horizon(harness: Harness) -> None:
    told = await harness.coordinator.horizon("", "")

    assert told.oldest_undecided_ms == told.now_ms - BEGIN_DEADLINE_MS.value


async def test_a_message_whose_address_names_no_database_holds_every_database_up(harness: Harness) -> None:
    harness.destination.script[CHECK].extend([Answer(425)] * 20)
    await harness.prepare(message("g"))
    born_ms = (await row_of(harness, "g")).created_ms
    harness.clock.advance(40 * DAY_MS)

    assert (await harness.coordinator.horizon("", "7f")).oldest_undecided_ms == born_ms


async def test_a_message_whose_body_cannot_be_read_holds_every_database_up(harness: Harness) -> None:
    unreadable = Insert("g", State.PREPARED, PAUSE_MS_MAX, b"\xc1")
    await super(type(harness.store), harness.store).flush(Batch([unreadable], []))
    born_ms = (await row_of(harness, "g")).created_ms
    harness.clock.advance(BEGIN_DEADLINE_MS.value + 1)

    assert (await harness.coordinator.horizon("http://elsewhere/", "7f")).oldest_undecided_ms == born_ms


async def test_a_redirected_message_holds_the_database_up_that_it_was_prepared_at(harness: Harness) -> None:
    moved = "http://bank-z/check"
    for address in (CHECK, moved):
        harness.destination.script[address].extend([Answer(425)] * 20)
    await harness.prepare(message("g"))
    born_ms = (await row_of(harness, "g")).created_ms
    wanted = Redirection(moved, check=True)
    reply, _ = await harness.coordinator.operator.redirect("g", wanted, Act(), lambda *_: None)
    assert reply.error is None
    harness.clock.advance(40 * DAY_MS)

    assert (await row_of(harness, "g")).created_ms == born_ms
    assert (await harness.coordinator.horizon(CHECK, "")).oldest_undecided_ms == born_ms
    assert (await harness.coordinator.horizon(moved, "")).oldest_undecided_ms == born_ms
    assert (await harness.coordinator.horizon("http://elsewhere/", "")).oldest_undecided_ms > born_ms


async def test_a_message_redirected_to_another_database_holds_both_up(harness: Harness) -> None:
    prepared, moved = f"{CHECK}?barrier=7f", "http://bank-z/check?barrier=8a"
    for address in (prepared, moved):
        harness.destination.script[address].extend([Answer(425)] * 20)
    await harness.prepare(message("g", check_url=prepared))
    born_ms = (await row_of(harness, "g")).created_ms
    wanted = Redirection(moved, check=True)
    reply, _ = await harness.coordinator.operator.redirect("g", wanted, Act(), lambda *_: None)
    assert reply.error is None
    harness.clock.advance(40 * DAY_MS)

    told = [await harness.coordinator.horizon("", identity) for identity in ("7f", "8a", "9b")]

    assert [one.oldest_undecided_ms == born_ms for one in told] == [True, True, False]


def test_no_pause_is_longer_than_what_counts_as_far() -> None:
    longest = Schedule(first_ms=10**12, cap_ms=10**13).starting_at(10**12)

    assert longest.pause_ms(1, 0.0) == PAUSE_MS_MAX
    assert Settings(retry_cap_ms=PAUSE_MS_MAX).retry_cap_ms == PAUSE_MS_MAX
