"""History and attempts are deleted by age, in steps.

A gid's duplicate is recognised until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, QUICK, Harness, message, set_back
from twophase.coordinator.maintenance.retention import Retention
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import ForgottenMessage, StateConflict, StoreError
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer
from twophase.stores.base import Purged

MakeRig = Callable[[CoordinatorSettings], Awaitable[Harness]]
DAY_MS = 24 * 3600 * 1000
KEPT = CoordinatorSettings(
    delivery=QUICK, check_back=QUICK, retention_ms=35 * DAY_MS, retention_interval_ms=60_000, purge_rows=3
)


async def _finished(harness: Harness, number: int) -> list[str]:
    gids = [make_gid(harness.clock.now_ms(), bytes([0] * 9 + [one])) for one in range(number)]
    for gid in gids:
        await harness.submit(message(gid))
        await harness.until_state(gid, State.SUCCEEDED)
    return gids


async def _until_gone(harness: Harness, *gids: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for gid in gids:
            while await harness.state(gid) is not None:
                await asyncio.sleep(0.002)


async def test_a_duplicate_is_known_as_long_as_its_history_and_refused_after(make_harness: MakeRig) -> None:
    harness = await make_harness(KEPT)
    (gid,) = await _finished(harness, 1)
    harness.clock.advance(35 * DAY_MS - 60_000)
    assert isinstance((await harness.prepare(message(gid))).error, StateConflict)

    harness.clock.advance(120_000)
    await _until_gone(harness, gid)

    for again in (harness.prepare, harness.submit):
        assert isinstance((await again(message(gid))).error, ForgottenMessage)
    assert harness.destination.urls() == ["http://bank-b/in"]


async def test_a_cleaning_under_a_clock_that_was_ahead_refuses_and_keeps_nothing_once_it_is_right(
    make_harness: MakeRig,
) -> None:
    """The horizon stands behind what was removed.

    It never falls, so it must not run ahead while the clock is ahead.
    """
    harness = await make_harness(KEPT)
    gids = await _finished(harness, 2)
    harness.clock.advance(60 * DAY_MS)
    await _until_gone(harness, *gids)
    await harness.submit(message("ended ahead"))
    await harness.until_state("ended ahead", State.SUCCEEDED)
    set_back(harness.clock, 60 * DAY_MS - 1_000)

    fresh = make_gid(harness.clock.now_ms(), bytes(RANDOM_BYTES))
    assert (await harness.prepare(message(fresh))).error is None
    assert (await harness.abort(fresh)).error is None
    assert isinstance((await harness.prepare(message(gids[0]))).error, ForgottenMessage)
    harness.clock.advance(36 * DAY_MS)
    await _until_gone(harness, fresh)
    assert await harness.state("ended ahead") is State.SUCCEEDED


async def test_what_is_unfinished_is_never_forgotten(make_harness: MakeRig) -> None:
    harness = await make_harness(KEPT)
    gid = make_gid(harness.clock.now_ms(), bytes(RANDOM_BYTES))
    harness.destination.script["http://bank-a/check"].extend([Answer(425)] * 100)
    await harness.prepare(message(gid))
    await harness.submit(message("marker"))
    await harness.until_state("marker", State.SUCCEEDED)

    harness.clock.advance(36 * DAY_MS)
    await _until_gone(harness, "marker")

    assert await harness.state(gid) is State.PREPARED
    assert (await harness.prepare(message(gid))).error is None
    assert await harness.store.attempts(gid), "nor is what went wrong with it"


async def test_more_than_a_step_is_removed_step_by_step(make_harness: MakeRig) -> None:
    harness = await make_harness(KEPT)
    gids = await _finished(harness, 10)

    harness.clock.advance(36 * DAY_MS)
    await _until_gone(harness, *gids)

    # A row is deleted before its step is reported.
    await until(lambda: len([step for step in harness.watcher.steps if step.history]) >= 4)
    assert len([step for step in harness.watcher.steps if step.history]) == 4
    assert sum(step.history for step in harness.watcher.steps) == 10


async def test_retention_0_keeps_everything(make_harness: MakeRig) -> None:
    harness = await make_harness(msgspec.structs.replace(KEPT, retention_ms=0))
    (gid,) = await _finished(harness, 1)

    harness.clock.advance(100 * 366 * DAY_MS)
    await harness.settled()

    assert await harness.state(gid) is State.SUCCEEDED
    assert harness.watcher.steps == []


async def test_a_cleaning_that_fails_is_reported_and_the_next_one_goes_on(harness: Harness) -> None:
    failures = [StoreError("the disk is gone")]
    asked: list[int] = []

    class Failing:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Any = None) -> int:
            return 0

        async def purge(self, before_ms: int, limit: int) -> Purged:
            asked.append(before_ms)
            if failures:
                raise failures.pop()
            return Purged(0, 0, more=False, horizon_ms=before_ms)

    retention = Retention(Runtime(Failing(), harness.clock, lambda: 0.0, KEPT, harness.watcher))  # type: ignore[arg-type] # three methods
    await retention.start()
    await until(lambda: len(asked) == 1)
    harness.clock.advance(60_001)
    retention.wake()
    await until(lambda: len(asked) == 2)
    await retention.stop()

    assert harness.watcher.cleaning_failures == ["TP-4000"]
    assert asked == [65 * DAY_MS] * 2


async def test_after_each_step_the_store_is_left_alone_several_times_as_long(harness: Harness) -> None:
    began_s: list[float] = []

    class Slow:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Any = None) -> int:
            return 0

        async def purge(self, before_ms: int, limit: int) -> Purged:
            began_s.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.02)
            return Purged(limit, 0, more=len(began_s) == 1, horizon_ms=before_ms)

    retention = Retention(Runtime(Slow(), harness.clock, lambda: 0.0, KEPT, harness.watcher))  # type: ignore[arg-type] # three methods
    await retention.start()
    await until(lambda: len(began_s) == 2)
    await retention.stop()

    assert began_s[1] - began_s[0] >= 0.19


async def test_a_cleaning_that_lasts_too_long_takes_more_at_once(harness: Harness) -> None:
    limits: list[int] = []

    class Slow:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Any = None) -> int:
            return 0

        async def purge(self, before_ms: int, limit: int) -> Purged:
            limits.append(limit)
            await asyncio.sleep(0.02)
            return Purged(limit, 0, more=len(limits) < 3, horizon_ms=before_ms)

    settings = msgspec.structs.replace(KEPT, retention_interval_ms=10, purge_share=1.0)
    retention = Retention(Runtime(Slow(), harness.clock, lambda: 0.0, settings, harness.watcher))  # type: ignore[arg-type] # three methods
    await retention.start()
    await until(lambda: len(limits) >= 3)
    await retention.stop()

    assert limits[:3] == [3, 15, 15]


async def test_a_step_that_is_too_much_for_the_store_is_tried_with_less(harness: Harness) -> None:
    """The same limit would run into the same statement timeout for ever.

    The rows of the step have large bodies.
    """
    limits: list[int] = []

    class Strained:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Any = None) -> int:
            return 0

        async def purge(self, before_ms: int, limit: int) -> Purged:
            limits.append(limit)
            if limit > 10:
                raise StoreError("canceling statement due to statement timeout")
            return Purged(limit, 0, more=len(limits) < 6, horizon_ms=before_ms)

    def reached(calls: int) -> bool:
        return len(limits) >= calls

    settings = msgspec.structs.replace(KEPT, purge_rows=100, purge_share=1.0)
    retention = Retention(Runtime(Strained(), harness.clock, lambda: 0.0, settings, harness.watcher))  # type: ignore[arg-type] # two
    await retention.start()
    for refused in (1, 2, 4):
        await until(partial(reached, refused))
        harness.clock.advance(60_001)
        retention.wake()
    await until(partial(reached, 6))
    await retention.stop()

    assert limits[:6] == [100, 25, 6, 12, 3, 6]
