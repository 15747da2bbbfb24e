"""A row that is due is tried once, whatever made memory forget it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import IN, PATIENCE_S, QUICK, Harness, message, set_back
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer
from twophase.stores.rows import LiveRow

DOWN = Answer(503)
LONG_MS = 45_000
DAY_MS = 86_400_000


def forgotten(harness: Harness, active: ActiveMessage) -> None:
    harness.coordinator._memory.remove(active)


def without_a_time(harness: Harness, active: ActiveMessage) -> None:
    harness.coordinator._memory.unschedule(active)


def of_before(harness: Harness, active: ActiveMessage) -> None:
    """Memory has an older version than the row, and another time."""
    active.version -= 1
    harness.coordinator._memory.schedule(active, harness.clock.now_ms() + 10 * LONG_MS)


async def retried(harness: Harness) -> ActiveMessage:
    """Return a message whose branch is down, when its next try is planned."""
    harness.destination.script[IN].append(DOWN)
    await harness.submit(message("g"))
    await until(lambda: harness.destination.urls() == [IN])
    await harness.settled()
    active = harness.coordinator._memory.get("g")
    assert active is not None
    assert active.slot is not None
    return active


def stopped_while_read(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_meant: Callable[[int], bool]
) -> tuple[asyncio.Event, asyncio.Event]:
    """Keep pages of due rows back as they were read, until the second event.

    Returns the event that is set when one was read, and the second.

    Arguments:
        is_meant: takes the time until which a page is read.
    """
    due, read, goes_on = harness.store.due, asyncio.Event(), asyncio.Event()

    async def due_slowly(until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        rows = await due(until_ms, after, limit)
        if rows and is_meant(until_ms):
            read.set()
            await goes_on.wait()
        return rows

    monkeypatch.setattr(harness.store, "due", due_slowly)
    return read, goes_on


@pytest.mark.parametrize("lose", [forgotten, without_a_time, of_before])
async def test_a_message_that_nothing_would_have_tried_is_delivered(
    harness: Harness, lose: Callable[[Harness, ActiveMessage], None]
) -> None:
    lose(harness, await retried(harness))
    harness.clock.advance(LONG_MS)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 1


async def test_a_message_that_waits_for_its_time_is_left_alone(harness: Harness) -> None:
    await retried(harness)
    harness.clock.advance(LONG_MS)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 0


async def test_a_call_that_hangs_is_left_alone(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await until(lambda: harness.destination.urls() == [IN])
    for _ in range(3):
        harness.clock.advance(LONG_MS)
        await harness.settled()
    assert harness.destination.urls() == [IN]
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 0


async def test_a_message_that_ends_while_a_page_is_read_is_not_called_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the row as it was before."""
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await until(lambda: harness.destination.urls() == [IN])
    harness.clock.advance(2 * 3_600_000)
    await harness.settled()
    read, goes_on = stopped_while_read(harness, monkeypatch, lambda _: True)
    set_back(harness.clock, 3_600_000)  # all that is due is read anew
    await asyncio.wait_for(read.wait(), PATIENCE_S)
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    await until(lambda: not harness.coordinator.gauges().active)

    goes_on.set()

    await harness.settled()
    assert harness.destination.urls() == [IN]


async def test_a_message_that_is_parked_while_a_page_is_read_is_not_called_again(
    make_harness: Callable[..., Awaitable[Harness]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the row as it was before."""
    harness = await make_harness(CoordinatorSettings(delivery=QUICK, check_back=QUICK, attempts_max=1))
    harness.destination.script[IN].append(DOWN)
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await until(lambda: harness.destination.urls() == [IN])
    read, goes_on = stopped_while_read(harness, monkeypatch, lambda until_ms: until_ms < harness.clock.now_ms())
    harness.clock.advance(LONG_MS)
    await asyncio.wait_for(read.wait(), PATIENCE_S)
    harness.destination.release(IN)
    await until(lambda: bool(harness.watcher.parked_messages))

    goes_on.set()

    await harness.settled()
    assert harness.destination.urls() == [IN]
    assert harness.watcher.overdue_messages == 0


async def test_what_was_overlooked_is_found_in_time_behind_a_clock_that_was_ahead(harness: Harness) -> None:
    recovery = harness.coordinator._recovery
    harness.clock.advance(DAY_MS)
    await until(lambda: recovery._overdue_ms > harness.clock.now_ms())
    set_back(harness.clock, DAY_MS)
    await until(lambda: recovery._seen_ms == harness.clock.now_ms())
    await harness.settled()  # all that is due has been read anew
    forgotten(harness, await retried(harness))

    harness.clock.advance(LONG_MS)

    await harness.until_state("g", State.SUCCEEDED)
    assert harness.watcher.overdue_messages == 1


async def test_a_clock_that_is_ahead_only_while_pages_are_read_is_seen(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is right again before the next look at it."""
    recovery, due = harness.coordinator._recovery, harness.store.due
    jumps = [DAY_MS]

    async def due_later(until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        rows = await due(until_ms, after, limit)
        if jumps and harness.clock._offset_ms == LONG_MS and until_ms > harness.clock.now_ms():
            harness.clock._offset_ms += jumps.pop()  # before the look at overdue rows
        return rows

    monkeypatch.setattr(harness.store, "due", due_later)
    today_ms = harness.clock.now_ms() + 2 * LONG_MS
    harness.clock.advance(LONG_MS)
    await until(lambda: recovery._overdue_ms > today_ms)
    await harness.settled()

    set_back(harness.clock, DAY_MS)

    await until(lambda: recovery._overdue_ms <= today_ms)
