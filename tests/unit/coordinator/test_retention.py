"""History and attempts are deleted by age, in steps.

A gid's duplicate is recognised until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from tests.unit.coordinator.rig import PATIENCE_S, QUICK, Rig, message, set_back
from twophase.coordinator.maintenance.retention import Retention
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import ForgottenMessage, StateConflict, StoreError
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer
from twophase.stores.base import Purged

MakeRig = Callable[[CoordinatorSettings], Awaitable[Rig]]
DAY_MS = 24 * 3600 * 1000
KEPT = CoordinatorSettings(
    delivery=QUICK, check_back=QUICK, retention_ms=35 * DAY_MS, retention_interval_ms=60_000, purge_rows=3
)


async def _finished(rig: Rig, number: int) -> list[str]:
    gids = [make_gid(rig.clock.now_ms(), bytes([0] * 9 + [one])) for one in range(number)]
    for gid in gids:
        await rig.submit(message(gid))
        await rig.until_state(gid, State.SUCCEEDED)
    return gids


async def _until_gone(rig: Rig, *gids: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for gid in gids:
            while await rig.state(gid) is not None:
                await asyncio.sleep(0.002)


async def test_a_duplicate_is_known_as_long_as_its_history_and_refused_after(make_rig: MakeRig) -> None:
    rig = await make_rig(KEPT)
    (gid,) = await _finished(rig, 1)
    rig.clock.advance(35 * DAY_MS - 60_000)
    assert isinstance((await rig.prepare(message(gid))).error, StateConflict)

    rig.clock.advance(120_000)
    await _until_gone(rig, gid)

    for again in (rig.prepare, rig.submit):
        assert isinstance((await again(message(gid))).error, ForgottenMessage)
    assert rig.destination.urls() == ["http://bank-b/in"]


async def test_a_cleaning_under_a_clock_that_was_ahead_refuses_and_keeps_nothing_once_it_is_right(
    make_rig: MakeRig,
) -> None:
    """The horizon stands behind what was removed.

    It never falls, so it must not run ahead while the clock is ahead.
    """
    rig = await make_rig(KEPT)
    gids = await _finished(rig, 2)
    rig.clock.advance(60 * DAY_MS)
    await _until_gone(rig, *gids)
    await rig.submit(message("ended ahead"))
    await rig.until_state("ended ahead", State.SUCCEEDED)
    set_back(rig.clock, 60 * DAY_MS - 1_000)

    fresh = make_gid(rig.clock.now_ms(), bytes(RANDOM_BYTES))
    assert (await rig.prepare(message(fresh))).error is None
    assert (await rig.abort(fresh)).error is None
    assert isinstance((await rig.prepare(message(gids[0]))).error, ForgottenMessage)
    rig.clock.advance(36 * DAY_MS)
    await _until_gone(rig, fresh)
    assert await rig.state("ended ahead") is State.SUCCEEDED


async def test_what_is_unfinished_is_never_forgotten(make_rig: MakeRig) -> None:
    rig = await make_rig(KEPT)
    gid = make_gid(rig.clock.now_ms(), bytes(RANDOM_BYTES))
    rig.destination.script["http://bank-a/check"].extend([Answer(425)] * 100)
    await rig.prepare(message(gid))
    await rig.submit(message("marker"))
    await rig.until_state("marker", State.SUCCEEDED)

    rig.clock.advance(36 * DAY_MS)
    await _until_gone(rig, "marker")

    assert await rig.state(gid) is State.PREPARED
    assert (await rig.prepare(message(gid))).error is None
    assert await rig.store.attempts(gid), "nor is what went wrong with it"


async def test_more_than_a_step_is_removed_step_by_step(make_rig: MakeRig) -> None:
    rig = await make_rig(KEPT)
    gids = await _finished(rig, 10)

    rig.clock.advance(36 * DAY_MS)
    await _until_gone(rig, *gids)

    # A row is deleted before its step is reported.
    await rig.until(lambda: len([step for step in rig.watcher.steps if step.history]) >= 4)
    assert len([step for step in rig.watcher.steps if step.history]) == 4
    assert sum(step.history for step in rig.watcher.steps) == 10


async def test_retention_0_keeps_everything(make_rig: MakeRig) -> None:
    rig = await make_rig(msgspec.structs.replace(KEPT, retention_ms=0))
    (gid,) = await _finished(rig, 1)

    rig.clock.advance(100 * 366 * DAY_MS)
    await rig.settled()

    assert await rig.state(gid) is State.SUCCEEDED
    assert rig.watcher.steps == []


async def test_a_cleaning_that_fails_is_reported_and_the_next_one_goes_on(rig: Rig) -> None:
    failures = [StoreError("the disk is gone")]
    asked: list[int] = []

    class Failing:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge(self, before_ms: int, limit: int) -> Purged:
            asked.append(before_ms)
            if failures:
                raise failures.pop()
            return Purged(0, 0, more=False, horizon_ms=before_ms)

    retention = Retention(Runtime(Failing(), rig.clock, lambda: 0.0, KEPT, rig.watcher))  # type: ignore[arg-type] # two methods
    await retention.start()
    await rig.until(lambda: len(asked) == 1)
    rig.clock.advance(60_001)
    retention.wake()
    await rig.until(lambda: len(asked) == 2)
    await retention.stop()

    assert rig.watcher.cleaning_failures == ["TP-4000"]
    assert asked == [65 * DAY_MS] * 2


async def test_after_each_step_the_store_is_left_alone_several_times_as_long(rig: Rig) -> None:
    began_s: list[float] = []

    class Slow:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge(self, before_ms: int, limit: int) -> Purged:
            began_s.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.02)
            return Purged(limit, 0, more=len(began_s) == 1, horizon_ms=before_ms)

    retention = Retention(Runtime(Slow(), rig.clock, lambda: 0.0, KEPT, rig.watcher))  # type: ignore[arg-type] # two methods
    await retention.start()
    await rig.until(lambda: len(began_s) == 2)
    await retention.stop()

    assert began_s[1] - began_s[0] >= 0.19


async def test_a_cleaning_that_lasts_too_long_takes_more_at_once(rig: Rig) -> None:
    limits: list[int] = []

    class Slow:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge(self, before_ms: int, limit: int) -> Purged:
            limits.append(limit)
            await asyncio.sleep(0.02)
            return Purged(limit, 0, more=len(limits) < 3, horizon_ms=before_ms)

    settings = msgspec.structs.replace(KEPT, retention_interval_ms=10, purge_share=1.0)
    retention = Retention(Runtime(Slow(), rig.clock, lambda: 0.0, settings, rig.watcher))  # type: ignore[arg-type] # two methods
    await retention.start()
    await rig.until(lambda: len(limits) >= 3)
    await retention.stop()

    assert limits[:3] == [3, 15, 15]


async def test_a_step_that_is_too_much_for_the_store_is_tried_with_less(rig: Rig) -> None:
    """The same limit would run into the same statement timeout for ever.

    The rows of the step have large bodies.
    """
    limits: list[int] = []

    class Strained:
        async def now_ms(self) -> int:
            return 100 * DAY_MS

        async def purge(self, before_ms: int, limit: int) -> Purged:
            limits.append(limit)
            if limit > 10:
                raise StoreError("canceling statement due to statement timeout")
            return Purged(limit, 0, more=len(limits) < 6, horizon_ms=before_ms)

    def reached(calls: int) -> bool:
        return len(limits) >= calls

    settings = msgspec.structs.replace(KEPT, purge_rows=100, purge_share=1.0)
    retention = Retention(Runtime(Strained(), rig.clock, lambda: 0.0, settings, rig.watcher))  # type: ignore[arg-type] # two
    await retention.start()
    for refused in (1, 2, 4):
        await rig.until(partial(reached, refused))
        rig.clock.advance(60_001)
        retention.wake()
    await rig.until(partial(reached, 6))
    await retention.stop()

    assert limits[:6] == [100, 25, 6, 12, 3, 6]
