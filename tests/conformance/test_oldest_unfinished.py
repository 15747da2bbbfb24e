"""The messages that hold back the cleaning of receivers' barrier rows.

The tests run over every engine (I10, rule 16).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.items import SetClock, flush, plain, prepare
from twophase.coordinator.maintenance import horizon
from twophase.coordinator.maintenance.horizon import oldest_unfinished_ms
from twophase.core.lifecycle import State
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.message import Branch, Message, encode
from twophase.core.options import Durability, Options
from twophase.core.schedule import PAUSE_MS_MAX
from twophase.stores.base import Store
from twophase.stores.batch import Decide, Finish, Park, Reschedule
from twophase.stores.rows import DecidedBy

DAY_MS = 24 * 3600 * 1000
FAR_MS = 2 * PAUSE_MS_MAX
EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK}


def body(gid: str, check_url: str = "http://bank-a/check", **options: Any) -> bytes:
    return encode(Message(gid, (Branch("http://bank-b/in"),), check_url, Options(**options)))


async def test_without_messages_it_is_the_time(store: Store, clock: SetClock) -> None:
    assert await oldest_unfinished_ms(store) == clock.time_ms


async def test_a_message_due_farther_ahead_than_any_pause_does_not_count_until_its_time_is_near(
    store: Store, clock: SetClock
) -> None:
    born_ms = clock.time_ms
    await flush(store, plain("far", due_in_ms=366 * DAY_MS, body=body("far", delay_ms=366 * DAY_MS)))

    for day, oldest_ms in (
        (100, born_ms + 100 * DAY_MS),
        (363, born_ms + 363 * DAY_MS),
        (364, born_ms),
        (400, born_ms),
    ):
        clock.time_ms = born_ms + day * DAY_MS
        assert await oldest_unfinished_ms(store) == oldest_ms, day
    await flush(store, Finish("far", 1, State.SUCCEEDED, "", "", 0, 1))
    assert await oldest_unfinished_ms(store) == clock.time_ms


@pytest.mark.parametrize("pause_ms", [1_000, PAUSE_MS_MAX, FAR_MS])
async def test_a_message_that_waits_for_its_next_try_counts_from_its_birth(
    store: Store, clock: SetClock, pause_ms: int
) -> None:
    born_ms = clock.time_ms
    await flush(store, plain("tried", body=body("tried")))
    clock.time_ms += 40 * DAY_MS
    await flush(store, Reschedule("tried", 1, clock.time_ms + pause_ms, attempts=9, done=0))

    assert await oldest_unfinished_ms(store) == born_ms
    await flush(store, Park("tried", 2, parked=True, due_ms=clock.time_ms + 2 * FAR_MS))
    assert await oldest_unfinished_ms(store) == born_ms, "parked after tries"


@pytest.mark.parametrize(("attempts", "done"), [(1, 0), (0, 0), (0, 1)])
@pytest.mark.parametrize("delay_ms", [0, DAY_MS, 363 * DAY_MS])
async def test_a_far_time_that_a_wrong_clock_has_set_counts_from_birth(
    store: Store, clock: SetClock, attempts: int, done: int, delay_ms: int
) -> None:
    """A branch may have been called, and its answer lost, under the wrong clock.

    Then the clock was set right.
    """
    born_ms = clock.time_ms
    await flush(store, plain("tried", due_in_ms=delay_ms, body=body("tried", delay_ms=delay_ms)))
    a_year_ahead_ms = born_ms + 365 * DAY_MS
    await flush(store, Reschedule("tried", 1, a_year_ahead_ms, attempts, done))
    clock.time_ms += 40 * DAY_MS

    assert await oldest_unfinished_ms(store) == born_ms


@pytest.mark.parametrize(("attempts", "done"), [(1, 0), (0, 1)])
async def test_a_message_that_was_tried_counts_from_birth_though_it_waits_for_its_own_time(
    store: Store, clock: SetClock, attempts: int, done: int
) -> None:
    """It was called under a clock that was ahead; then the clock was set right."""
    born_ms = clock.time_ms
    await flush(store, plain("tried", due_in_ms=366 * DAY_MS, body=body("tried", delay_ms=366 * DAY_MS)))
    await flush(store, Reschedule("tried", 1, born_ms + 366 * DAY_MS, attempts, done))
    clock.time_ms += 40 * DAY_MS

    assert await oldest_unfinished_ms(store) == born_ms


async def test_a_message_with_check_back_durability_counts_from_birth_though_it_waits_for_its_own_time(
    store: Store, clock: SetClock
) -> None:
    """An earlier submit may have been acknowledged, called and forgotten."""
    born_ms = clock.time_ms
    await flush(store, plain("far", due_in_ms=366 * DAY_MS, body=body("far", delay_ms=366 * DAY_MS, **EARLY)))
    clock.time_ms += 40 * DAY_MS

    assert await oldest_unfinished_ms(store) == born_ms


async def test_of_more_far_messages_than_are_read_all_count(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horizon, "_PAGE_ROWS", 2)
    monkeypatch.setattr(horizon, "_PAGES_MAX", 2)
    born_ms = clock.time_ms
    for number in range(4):
        gid = f"far{number}"
        await flush(store, plain(gid, due_in_ms=366 * DAY_MS, body=body(gid, delay_ms=366 * DAY_MS)))
        clock.time_ms += DAY_MS
        if number < 3:
            assert await oldest_unfinished_ms(store) == clock.time_ms
    assert await oldest_unfinished_ms(store) == born_ms


async def test_a_prepared_message_that_was_never_called_does_not_count_but_while_it_is_young(
    store: Store, clock: SetClock
) -> None:
    born_ms = clock.time_ms
    await flush(
        store, prepare("undecided", body=body("undecided")), prepare("parked", body=body("parked", "", **EARLY))
    )
    assert await oldest_unfinished_ms(store) == born_ms
    clock.time_ms += 40 * DAY_MS
    await flush(store, Park("parked", 1, parked=True, due_ms=clock.time_ms))

    assert await oldest_unfinished_ms(store) == clock.time_ms - BEGIN_DEADLINE_MS.value


@pytest.mark.parametrize("parked", [False, True])
async def test_a_prepared_message_whose_branches_may_have_been_called_counts_from_its_birth(
    store: Store, clock: SetClock, parked: bool
) -> None:
    await flush(store, prepare("older", body=body("older")))
    clock.time_ms += 10
    born_ms = clock.time_ms
    await flush(store, prepare("early", body=body("early", **EARLY)))
    clock.time_ms += 40 * DAY_MS
    await flush(store, Park("early", 1, parked=parked, due_ms=clock.time_ms))

    assert await oldest_unfinished_ms(store) == born_ms
    await flush(store, Decide("early", 2, 0, DecidedBy.CHECK_BACK))
    assert await oldest_unfinished_ms(store) == born_ms, "called before it was decided"


@pytest.mark.parametrize("options", [{"delay_ms": 1}, {"not_before_ms": 1}, {"wait_result": True}], ids=str)
async def test_check_back_durability_that_calls_nothing_early_does_not_count(
    store: Store, clock: SetClock, options: dict[str, Any]
) -> None:
    await flush(store, prepare("g", body=body("g", **EARLY, **options)))
    clock.time_ms += 40 * DAY_MS

    assert await oldest_unfinished_ms(store) == clock.time_ms - BEGIN_DEADLINE_MS.value


async def test_a_body_that_cannot_be_read_counts_from_its_birth(store: Store, clock: SetClock) -> None:
    born_ms = clock.time_ms
    await flush(store, prepare("g", body=b"?"))
    clock.time_ms += 40 * DAY_MS

    assert await oldest_unfinished_ms(store) == born_ms


async def test_of_more_prepared_messages_than_are_read_the_last_one_read_counts(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horizon, "_PAGE_ROWS", 3)
    monkeypatch.setattr(horizon, "_PAGES_MAX", 2)
    born_ms = clock.time_ms
    for number in range(7):
        clock.time_ms = born_ms + number
        await flush(store, prepare(f"g{number}", body=body(f"g{number}")))
    clock.time_ms += 40 * DAY_MS

    assert await oldest_unfinished_ms(store) == born_ms + 5


async def test_a_message_that_is_decided_between_the_questions_is_not_missed(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    born_ms = clock.time_ms
    await flush(store, prepare("early", body=body("early", **EARLY)))
    clock.time_ms += 40 * DAY_MS
    overview, undecided = store.overview, store.oldest_undecided
    asked: list[str] = []

    async def decided() -> None:
        asked.append("")
        if len(asked) == 1:
            await flush(store, Decide("early", 1, 0, DecidedBy.SUBMIT))

    async def overview_first(due_by_ms: int) -> Any:
        found = await overview(due_by_ms)
        await decided()
        return found

    async def undecided_first(*page: Any) -> Any:
        found = await undecided(*page)
        await decided()
        return found

    monkeypatch.setattr(store, "overview", overview_first)
    monkeypatch.setattr(store, "oldest_undecided", undecided_first)

    assert await oldest_unfinished_ms(store) == born_ms
