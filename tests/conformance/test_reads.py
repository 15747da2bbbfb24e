"""Look-ups, due rows, attempts and counts."""

from __future__ import annotations

from tests.support.items import LONE_SURROGATE, SetClock, abort, failed_call, flush, plain, prepare
from twophase.core.lifecycle import State
from twophase.stores.base import DUE_BYTES_MAX, Overview, Store
from twophase.stores.batch import Batch, Decide, Finish, Park, Rejected, Reschedule
from twophase.stores.rows import DecidedBy


async def test_an_unknown_gid_has_no_row(store: Store) -> None:
    assert await store.get("nobody") is None
    assert await store.get(LONE_SURROGATE) is None


async def test_gids_differ_by_their_bytes_alone(store: Store) -> None:
    gids = ["g", "G", "g ", "é", "e\u0301", "g\x01h"]

    assert (await flush(store, *(prepare(gid, body=gid.encode()) for gid in gids))).refused == {}
    assert [row.body for gid in gids if (row := await store.get(gid))] == [gid.encode() for gid in gids]


async def test_a_nul_is_kept_or_rejected_and_never_cut(store: Store) -> None:
    result = await flush(store, prepare("g\x00h"), prepare("g"))

    assert isinstance(result.refused.pop(0, Rejected("")), Rejected)
    assert result.refused == {}
    assert [row.gid for gid in ("g\x00h", "g") if (row := await store.get(gid))] in (["g\x00h", "g"], ["g"])


async def test_due_rows_come_in_the_order_of_due_time_and_gid(store: Store, clock: SetClock) -> None:
    await flush(store, *(prepare(f"{due}-{gid}", due_in_ms=due) for gid in "cab" for due in (2, 1, 3)))

    rows = await store.due(clock.time_ms + 2, (-1, ""), 100)

    assert [row.gid for row in rows] == ["1-a", "1-b", "1-c", "2-a", "2-b", "2-c"]


async def test_due_pages_join_without_gap_or_repeat(store: Store, clock: SetClock) -> None:
    gids = sorted(f"g{number:03}" for number in range(97))
    await flush(store, *(prepare(gid, due_in_ms=0) for gid in gids))

    seen: list[str] = []
    after = (-1, "")
    while page := await store.due(clock.time_ms, after, 10):
        assert len(page) <= 10
        seen += [row.gid for row in page]
        after = (page[-1].due_ms, page[-1].gid)

    assert seen == gids


async def test_a_page_of_large_bodies_is_a_short_one(store: Store, clock: SetClock) -> None:
    """A page of a thousand would otherwise hold gigabytes."""
    body = bytes(DUE_BYTES_MAX // 4 - 1)
    await flush(store, *(prepare(gid, due_in_ms=0, body=body) for gid in "abcdefg"))

    first = await store.due(clock.time_ms, (-1, ""), 100)
    second = await store.due(clock.time_ms, (first[-1].due_ms, first[-1].gid), 100)

    assert [row.gid for row in first] == ["a", "b", "c", "d", "e"], "the fifth makes it more"
    assert [row.gid for row in second] == ["f", "g"]
    assert {row.body for row in (*first, *second)} == {body}


async def test_parked_and_final_rows_are_not_due(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("parked"), prepare("final"), prepare("waits", due_in_ms=1), prepare("back", due_in_ms=0))
    await flush(store, Park("parked", 1, parked=True, due_ms=0), abort("final"), Park("back", 1, parked=True, due_ms=0))
    await flush(store, Park("back", 2, parked=False, due_ms=5))

    assert [row.gid for row in await store.due(clock.time_ms + 1, (-1, ""), 10)] == ["back", "waits"]


async def test_attempts_are_read_oldest_first_and_the_newest_win(store: Store) -> None:
    await store.flush(Batch([], [failed_call("g", at_ms) for at_ms in range(5)]))
    await store.flush(Batch([prepare("other")], [failed_call("other", 9), failed_call("g", 5)]))

    assert await store.attempts("g") == [failed_call("g", at_ms) for at_ms in range(6)]
    assert [attempt.at_ms for attempt in await store.attempts("g", limit=2)] == [4, 5]
    assert await store.attempts("nobody") == []


async def test_the_overview_counts_what_is_live(store: Store, clock: SetClock) -> None:
    assert await store.overview() == Overview(0, 0, 0, None, None)
    start_ms = clock.time_ms
    await flush(store, prepare("a"), prepare("b"), prepare("c"))
    clock.time_ms += 10
    await flush(store, plain("d"), Decide("a", 1, 0, DecidedBy.SUBMIT), abort("c"))
    clock.time_ms += 10
    await flush(store, plain("e"), Park("d", 1, parked=True, due_ms=0))

    assert await store.overview() == Overview(
        prepared=1,
        submitted=3,
        parked=1,
        oldest_prepared_ms=start_ms,
        oldest_submitted_ms=start_ms + 10,
        oldest_tried_ms=start_ms,
    )


async def test_the_oldest_tried_message_is_reported_by_its_birth_whatever_became_of_it(
    store: Store, clock: SetClock
) -> None:
    start_ms = clock.time_ms
    await flush(store, prepare("decided"))
    clock.time_ms += 10
    await flush(store, prepare("prepared"))
    clock.time_ms += 10
    assert (await store.overview()).oldest_tried_ms is None
    await flush(store, Decide("decided", 1, 0, DecidedBy.CHECK_BACK), plain("plain"))
    assert (await store.overview()).oldest_tried_ms == start_ms

    await flush(store, Park("decided", 2, parked=True, due_ms=2**61))
    assert (await store.overview(due_by_ms=clock.time_ms - 1)).oldest_tried_ms == start_ms

    await flush(store, Finish("decided", 3, State.SUCCEEDED, "", "", 1, 1))
    assert (await store.overview()).oldest_tried_ms == start_ms + 20

    await flush(store, Finish("plain", 1, State.SUCCEEDED, "", "", 1, 1))
    assert (await store.overview()).oldest_tried_ms is None


async def test_what_is_due_later_than_asked_for_is_not_among_the_tried(store: Store, clock: SetClock) -> None:
    start_ms = clock.time_ms
    await flush(store, plain("far", due_in_ms=5_000))
    clock.time_ms += 10
    await flush(store, plain("near", due_in_ms=100))

    for due_by_ms, oldest_ms in ((5_000, start_ms), (4_999, start_ms + 10), (110, start_ms + 10), (109, None)):
        assert (await store.overview(start_ms + due_by_ms)).oldest_tried_ms == oldest_ms, due_by_ms
    await flush(store, Reschedule("far", 1, start_ms + 50, attempts=1, done=0))
    assert (await store.overview(start_ms + 109)).oldest_tried_ms == start_ms


async def test_the_stores_clock_and_horizon(store: Store, clock: SetClock) -> None:
    assert await store.now_ms() == clock.time_ms
    assert await store.history_horizon_ms() == 0
