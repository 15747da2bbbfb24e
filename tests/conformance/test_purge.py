"""The rows that are deleted, and those that are kept.

A forgotten gid gets no second life (correctness 14, 15; I10).
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.conformance.engines import Engine
from tests.support.items import SetClock, abort, failed_call, final, flush, live, plain, prepare
from twophase.core.gid import make_gid
from twophase.stores.base import ATTEMPTS_SHOWN, Purged, Store
from twophase.stores.batch import Batch, Decide, Forgotten, Park, Reschedule
from twophase.stores.rows import DecidedBy


def born(at_ms: int, number: int = 0) -> str:
    """Return one of twophase's own gids."""
    return make_gid(at_ms, number.to_bytes(10))


async def ended(store: Store, *gids: str) -> None:
    """Abort these messages."""
    await flush(store, *(prepare(gid) for gid in gids))
    await flush(store, *(abort(gid) for gid in gids))


async def purge_all(store: Store, before_ms: int, limit: int = 100) -> list[Purged]:
    """Purge step by step until nothing is left to remove."""
    steps = [await store.purge(before_ms, limit)]
    while steps[-1].more:
        steps.append(await store.purge(before_ms, limit))
    return steps


async def cleaned_up_to_now(store: Store, clock: SetClock) -> None:
    """Clean history: messages born before now may be forgotten."""
    clock.time_ms -= 1
    await ended(store, "cleaned")
    clock.time_ms += 1
    steps = await purge_all(store, clock.time_ms)
    assert steps[-1].horizon_ms == clock.time_ms


async def test_history_older_than_the_bound_is_removed_and_younger_kept(store: Store, clock: SetClock) -> None:
    await ended(store, "old")
    old_ms = clock.time_ms
    clock.time_ms += 1_000
    before_ms, kept_ms = clock.time_ms, clock.time_ms
    await ended(store, "young")

    (step,) = await purge_all(store, before_ms)

    assert step == Purged(1, 0, more=False, horizon_ms=old_ms + 1, oldest_ms=kept_ms)
    assert await store.get("old") is None
    assert (await final(store, "young")).gid == "young"


async def test_the_horizon_is_what_purge_returned_and_never_falls(store: Store, clock: SetClock) -> None:
    await ended(store, "late")
    late_ms, clock.time_ms = clock.time_ms, clock.time_ms - 500
    await ended(store, "early")
    clock.time_ms += 1_000

    assert [step.horizon_ms for step in await purge_all(store, clock.time_ms, limit=1)] == [late_ms + 1] * 2
    assert await store.history_horizon_ms() == late_ms + 1


async def test_a_cleaning_that_removes_nothing_raises_no_horizon(store: Store, clock: SetClock) -> None:
    """Under a clock that is months ahead, the bound would refuse every new gid.

    It would do so until that time.
    """
    await ended(store, "kept")

    assert (await store.purge(clock.time_ms, 10)).horizon_ms == 0
    assert await store.history_horizon_ms() == 0


async def test_under_a_clock_that_is_ahead_no_gid_is_forgotten_that_is_born_after_it_is_right(
    store: Store, clock: SetClock
) -> None:
    await ended(store, born(clock.time_ms), "foreign")
    right_ms, clock.time_ms = clock.time_ms + 1, clock.time_ms + 60 * 86_400_000
    assert sum(step.history for step in await purge_all(store, clock.time_ms - 35 * 86_400_000)) == 2
    clock.time_ms = right_ms

    result = await flush(store, prepare(born(right_ms - 1)), prepare(born(right_ms)))

    assert result.refused == {0: Forgotten(right_ms)}


async def test_what_a_clock_that_was_ahead_has_dated_hides_nothing_behind_it(store: Store, clock: SetClock) -> None:
    right_ms, clock.time_ms = clock.time_ms, clock.time_ms + 86_400_000
    ahead = [f"ahead{number}" for number in range(20)]
    await ended(store, *ahead)
    await store.flush(Batch([], [failed_call("gone", clock.time_ms) for _ in range(20)]))
    clock.time_ms = right_ms
    await ended(store, "behind")
    await store.flush(Batch([], [failed_call("gone", clock.time_ms)]))
    clock.time_ms += 1_000

    steps = await purge_all(store, clock.time_ms, limit=2)

    assert (sum(step.history for step in steps), sum(step.attempts for step in steps)) == (1, 1)
    assert await store.get("behind") is None
    assert [(await final(store, gid)).gid for gid in ahead] == ahead
    assert await store.history_horizon_ms() == right_ms + 1
    clock.time_ms += 2 * 86_400_000
    assert sum(step.history for step in await purge_all(store, clock.time_ms)) == 20


async def test_an_empty_history_has_no_oldest_row(store: Store, clock: SetClock) -> None:
    await ended(store, "old")

    assert (await store.purge(clock.time_ms + 1, 10)).oldest_ms is None


async def test_a_step_removes_no_more_than_its_limit_and_says_that_more_is_left(store: Store, clock: SetClock) -> None:
    await ended(store, *(f"g{number}" for number in range(25)))
    clock.time_ms += 1

    steps = await purge_all(store, clock.time_ms, limit=10)

    assert [step.history for step in steps if step.history] == [10, 10, 5]
    assert [await store.get(f"g{number}") for number in range(25)] == [None] * 25


async def test_live_rows_are_never_removed_however_old(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("prepared"), plain("submitted"), plain("parked"))
    await flush(store, Park("parked", 1, parked=True, due_ms=0))
    clock.time_ms += 10_000_000

    await purge_all(store, clock.time_ms)

    assert [(await live(store, gid)).gid for gid in ("prepared", "submitted", "parked")]


async def test_attempts_go_by_their_age_unless_they_are_the_newest_of_a_live_message(
    store: Store, clock: SetClock
) -> None:
    await ended(store, "final")
    old_ms, clock.time_ms = clock.time_ms, clock.time_ms + 1_000
    attempts = [failed_call(gid, at_ms) for gid in ("final", "live") for at_ms in (old_ms, clock.time_ms)]
    await store.flush(Batch([plain("live")], attempts))

    steps = await purge_all(store, clock.time_ms)

    assert sum(step.attempts for step in steps) == 1
    assert [attempt.at_ms for attempt in await store.attempts("final")] == [clock.time_ms]
    assert [attempt.at_ms for attempt in await store.attempts("live")] == [old_ms, clock.time_ms]


async def test_of_a_live_message_the_attempts_that_are_shown_stay_however_old(store: Store, clock: SetClock) -> None:
    old_ms, clock.time_ms = clock.time_ms, clock.time_ms + 1_000
    old = [failed_call("live", old_ms + number) for number in range(ATTEMPTS_SHOWN + 7)]
    await store.flush(Batch([plain("live"), plain("other")], [*old, failed_call("other", old_ms)]))

    assert sum(step.attempts for step in await purge_all(store, clock.time_ms, limit=3)) == 7
    assert await store.attempts("live", limit=1_000) == old[7:]

    young = [failed_call("live", clock.time_ms) for _ in range(40)]
    await store.flush(Batch([], young))
    assert sum(step.attempts for step in await purge_all(store, clock.time_ms, limit=30)) == 40
    assert sum(step.attempts for step in await purge_all(store, clock.time_ms, limit=30)) == 0
    assert await store.attempts("live", limit=1_000) == [*old[47:], *young]
    assert len(await store.attempts("other")) == 1


async def test_no_attempt_of_a_live_message_goes_that_an_archive_still_needs(
    engine: Engine, store: Store, tmp_path: Path, clock: SetClock
) -> None:
    calls = [failed_call("live", clock.time_ms + number) for number in range(ATTEMPTS_SHOWN + 20)]
    await store.flush(Batch([plain("live")], calls))
    engine.archived(tmp_path, clock.time_ms + 5)
    clock.time_ms += 1_000

    assert sum(step.attempts for step in await purge_all(store, clock.time_ms)) == 5
    assert await store.attempts("live", limit=1_000) == calls[5:]


async def test_many_attempts_of_live_messages_do_not_hide_what_lies_behind(store: Store, clock: SetClock) -> None:
    await store.flush(Batch([plain("live")], [failed_call("live", clock.time_ms) for _ in range(50)]))
    await store.flush(Batch([], [failed_call("gone", clock.time_ms) for _ in range(5)]))
    clock.time_ms += 1

    steps = await purge_all(store, clock.time_ms, limit=2)

    assert sum(step.attempts for step in steps) == 5
    assert await store.attempts("gone") == []


async def test_nothing_an_archive_still_needs_is_removed(
    engine: Engine, store: Store, tmp_path: Path, clock: SetClock
) -> None:
    await ended(store, "archived")
    archived_ms = clock.time_ms
    clock.time_ms += 1_000
    until_ms = clock.time_ms
    await ended(store, "not yet")
    clock.time_ms += 1_000
    engine.archived(tmp_path, until_ms)

    steps = await purge_all(store, clock.time_ms)

    assert steps[-1].horizon_ms == await store.history_horizon_ms() == archived_ms + 1
    assert await store.get("archived") is None
    assert (await final(store, "not yet")).gid == "not yet"


async def test_a_gid_older_than_the_horizon_gets_no_second_life(store: Store, clock: SetClock) -> None:
    gid, plain_gid = born(clock.time_ms), born(clock.time_ms, 1)
    await ended(store, gid, plain_gid)
    clock.time_ms += 1
    await purge_all(store, clock.time_ms)

    result = await flush(store, prepare(gid), prepare("foreign"), plain(plain_gid), prepare(born(clock.time_ms)))

    assert result.refused == {0: Forgotten(clock.time_ms), 2: Forgotten(clock.time_ms)}
    assert await store.get(gid) is None
    assert (await live(store, "foreign")).gid == "foreign"
    assert (await live(store, born(clock.time_ms))).gid == born(clock.time_ms)


async def test_the_horizon_counts_as_it_stands_in_the_same_commit(store: Store, clock: SetClock) -> None:
    """The gid may never have been seen here: the store cannot know that any more."""
    await cleaned_up_to_now(store, clock)

    for first, second in ((born(clock.time_ms - 1), born(clock.time_ms - 2)),):
        assert (await flush(store, prepare(first))).refused == {0: Forgotten(clock.time_ms)}
        assert (await flush(store, prepare(second), prepare("x"))).refused == {0: Forgotten(clock.time_ms)}
    assert (await live(store, "x")).gid == "x"


@pytest.mark.parametrize(
    "gid",
    ["tp", "tp0", "tp01hf7yat00000000000000000", "tp01hf7yat0000000000000000000", "tp01hf7yat00000000000000000u"],
    ids=["prefix", "short", "one less", "one more", "no digit"],
)
async def test_a_foreign_gid_that_looks_like_an_old_one_of_ours_is_taken(
    store: Store, clock: SetClock, gid: str
) -> None:
    clock.time_ms += 1_000_000_000
    await cleaned_up_to_now(store, clock)

    assert (await flush(store, prepare(gid))).refused == {}


async def test_an_old_gid_whose_row_stands_is_refused_by_the_row(store: Store, clock: SetClock) -> None:
    """A message that has waited for months still answers its own duplicates."""
    waits, ends = born(clock.time_ms), born(clock.time_ms, 1)
    await flush(store, prepare(waits), prepare(ends))
    clock.time_ms += 10_000
    await cleaned_up_to_now(store, clock)
    await flush(store, abort(ends))

    result = await flush(store, prepare(waits), plain(ends))

    assert result.refused == {0: await live(store, waits), 1: await final(store, ends)}


async def test_an_old_message_that_is_live_is_decided_like_any_other(store: Store, clock: SetClock) -> None:
    gid = born(clock.time_ms)
    await flush(store, prepare(gid))
    clock.time_ms += 10_000
    await cleaned_up_to_now(store, clock)

    assert (await flush(store, Decide(gid, 1, 0, DecidedBy.SUBMIT))).refused == {}
    assert (await flush(store, Reschedule(gid, 2, 5, 1, 0))).refused == {}


async def test_a_gid_born_by_a_clock_that_is_ahead_is_kept_until_the_horizon_has_passed_it(
    store: Store, clock: SetClock
) -> None:
    """If its history were removed at its end, the gid would be free again.

    It would be younger than the horizon.
    """
    ahead_ms = clock.time_ms + 3_600_000
    gid = born(ahead_ms)
    await ended(store, gid, "beside")
    clock.time_ms += 1_000

    assert sum(step.history for step in await purge_all(store, clock.time_ms)) == 1
    assert (await flush(store, prepare(gid))).refused == {0: await final(store, gid)}

    clock.time_ms = ahead_ms + 1_000
    assert sum(step.history for step in await purge_all(store, clock.time_ms)) == 1
    assert (await flush(store, prepare(gid))).refused == {0: Forgotten(ahead_ms + 1)}


async def test_neighbours_of_a_forgotten_gid_that_is_stale_besides_are_applied(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("a"), prepare("b"))
    await cleaned_up_to_now(store, clock)

    result = await flush(store, prepare(born(clock.time_ms - 1)), abort("a", version=9), abort("b"), prepare("c"))

    assert result.refused == {0: Forgotten(clock.time_ms), 1: await live(store, "a")}
    assert (await final(store, "b")).seq == 2
    assert (await live(store, "c")).version == 1


async def test_history_numbers_go_on_after_a_purge_and_a_restart(
    engine: Engine, store: Store, tmp_path: Path, clock: SetClock
) -> None:
    await ended(store, "a", "b")
    clock.time_ms += 1
    await purge_all(store, clock.time_ms)
    await store.stop()
    again = engine.make(tmp_path, clock)
    await again.start()

    await ended(again, "c")

    assert (await final(again, "c")).seq == 3
    assert await again.history_horizon_ms() == clock.time_ms
    await again.stop()


async def test_undecided_messages_come_oldest_first_parked_or_not(store: Store, clock: SetClock) -> None:
    start_ms = clock.time_ms
    for gid in ("b", "a", "parked", "submitted", "final", "young"):
        await flush(store, prepare(gid))
        clock.time_ms += 0 if gid == "b" else 10
    await flush(store, Park("parked", 1, parked=True, due_ms=0), abort("final"))
    await flush(store, Decide("submitted", 1, 0, DecidedBy.SUBMIT))

    rows = await store.oldest_undecided(start_ms + 40, (-1, ""), 10)

    assert [(row.gid, row.created_ms) for row in rows] == [
        ("a", start_ms),
        ("b", start_ms),
        ("parked", start_ms + 10),
    ]


async def test_pages_of_undecided_messages_join_without_gap_or_repeat(store: Store, clock: SetClock) -> None:
    gids = [f"g{number:02}" for number in range(23)]
    for start in range(0, 23, 5):
        await flush(store, *(prepare(gid) for gid in gids[start : start + 5]))
        clock.time_ms += 1

    seen: list[str] = []
    after = (-1, "")
    while page := await store.oldest_undecided(clock.time_ms, after, 4):
        assert len(page) <= 4
        seen += [row.gid for row in page]
        after = (page[-1].created_ms, page[-1].gid)

    assert seen == gids


async def test_what_no_longer_stands_as_it_was_known_is_reported(store: Store) -> None:
    await flush(store, prepare("same"), prepare("changed"), prepare("final"))
    await flush(store, Reschedule("changed", 1, 5, 1, 0), abort("final"))

    known = [("same", 1), ("changed", 1), ("final", 1), ("unknown", 1)]

    assert await store.moved(known) == {"changed", "final", "unknown"}
    assert await store.moved([("changed", 2), ("same", 1)]) == set()
    assert await store.moved([]) == set()


@pytest.mark.parametrize("count", [1025, 3000])
async def test_any_number_may_be_asked_about(store: Store, count: int) -> None:
    gids = [f"g{number:05}" for number in range(count)]
    await flush(store, *(prepare(gid) for gid in gids))
    await flush(store, abort(gids[-1]))

    assert await store.moved([(gid, 1) for gid in gids]) == {gids[-1]}


async def test_a_duplicate_that_races_with_the_cleaner_gets_no_second_life(store: Store, clock: SetClock) -> None:
    """At any moment either its row stands, or the horizon does."""
    gids = [born(clock.time_ms, number) for number in range(400)]
    await ended(store, *gids)
    clock.time_ms += 1
    refused: list[object] = []
    beside = itertools.count()

    async def duplicates() -> None:
        for start in range(0, len(gids), 8):
            batch = gids[start : start + 8]
            result = await flush(store, *(prepare(gid) for gid in batch), prepare(f"beside {next(beside)}"))
            assert sorted(result.refused) == list(range(8))
            refused.extend(result.refused.values())

    cleaning = asyncio.create_task(purge_all(store, clock.time_ms, limit=20))
    async with asyncio.timeout(60):
        while not cleaning.done():
            await duplicates()
    await duplicates()

    assert {type(one) for one in refused} >= {Forgotten}
    assert [gid for gid in gids if await store.get(gid) is not None] == []
