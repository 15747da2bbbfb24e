"""The effect of each item that applies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.engines import Engine
from tests.support.items import SetClock, abort, failed_call, final, flush, live, plain, prepare
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Decide, DecideEarly, Finish, Insert, Park, Redirect, Reschedule
from twophase.stores.rows import DecidedBy, HistoryRow, LiveRow


async def test_an_insert_becomes_a_live_row_at_the_stores_time(store: Store, clock: SetClock) -> None:
    result = await flush(store, prepare("g", due_in_ms=500, body=b"\x00\xff"))

    assert result.refused == {}
    assert result.at_ms == clock.time_ms
    assert await store.get("g") == LiveRow(
        "g", State.PREPARED, 1, clock.time_ms + 500, clock.time_ms, 0, "", 0, False, 0, b"\x00\xff"
    )


async def test_a_message_that_was_begun_elsewhere_keeps_its_birth(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("taken"))
    known, clock.time_ms = await live(store, "taken"), clock.time_ms + 1_000
    births = {"old": 7, "unknown": 0, "new": None, "taken": 7}
    items = [Insert(gid, State.SUBMITTED, 500, b"body", birth) for gid, birth in births.items()]

    result = await flush(store, *items)

    assert result.refused == {3: known}
    rows = {gid: await live(store, gid) for gid in births}
    assert {gid: row.created_ms for gid, row in rows.items()} == {
        "old": 7,
        "unknown": 0,
        "new": clock.time_ms,
        "taken": known.created_ms,
    }
    assert {rows[gid].due_ms for gid in ("old", "unknown", "new")} == {clock.time_ms + 500}
    assert {rows[gid].decided_ms for gid in ("old", "unknown", "new")} == {clock.time_ms}
    assert (await store.overview(clock.time_ms + 500)).oldest_tried_ms == 0


async def test_a_birth_beside_an_item_that_the_database_refuses_stays_its_own(store: Store) -> None:
    good, bad = (Insert(gid, State.PREPARED, 0, b"body", 7) for gid in ("good", "\ud800"))

    result = await flush(store, bad, good)

    assert list(result.refused) == [0]
    assert (await live(store, "good")).created_ms == 7


async def test_a_plain_message_is_decided_by_its_submit(store: Store, clock: SetClock) -> None:
    await flush(store, plain("g"))

    row = await live(store, "g")
    assert (row.state, row.decided_ms, row.decided_by) == (State.SUBMITTED, clock.time_ms, DecidedBy.SUBMIT)


async def test_a_decision_makes_it_submitted_and_starts_its_counts_again(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("g"))
    await flush(store, Reschedule("g", 1, 7, attempts=3, done=1))
    await flush(store, Park("g", 2, parked=True, due_ms=7))
    born_ms, clock.time_ms = clock.time_ms, clock.time_ms + 1_000

    await flush(store, Decide("g", 3, 250, DecidedBy.CHECK_BACK))

    assert await store.get("g") == LiveRow(
        "g", State.SUBMITTED, 4, clock.time_ms + 250, born_ms, clock.time_ms, "check-back", 0, False, 0, b"body"
    )


async def test_an_early_decision_is_stored_with_what_its_calls_have_done(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("g"), prepare("other"))
    await flush(store, Reschedule("g", 1, 7, attempts=3, done=0))
    await flush(store, Park("g", 2, parked=True, due_ms=7))
    born_ms, clock.time_ms = clock.time_ms, clock.time_ms + 1_000

    result = await flush(
        store, DecideEarly("g", 3, 250, DecidedBy.SUBMIT, 1, 0b01), DecideEarly("other", 1, 50, DecidedBy.SUBMIT, 2, 0)
    )

    assert (result.refused, result.at_ms) == ({}, clock.time_ms)
    assert await store.get("g") == LiveRow(
        "g", State.SUBMITTED, 4, clock.time_ms + 250, born_ms, clock.time_ms, "submit", 1, False, 0b01, b"body"
    )
    other = await live(store, "other")
    assert (other.due_ms, other.attempts, other.done) == (clock.time_ms + 50, 2, 0)


async def test_a_decision_may_bring_a_new_body(store: Store) -> None:
    await flush(store, prepare("g", body=b"old"))
    await flush(store, Decide("g", 1, 0, DecidedBy.SUBMIT, b"new"))

    assert (await live(store, "g")).body == b"new"


async def test_a_reschedule_changes_due_attempts_and_done(store: Store) -> None:
    await flush(store, plain("g"))
    await flush(store, Reschedule("g", 1, 99, attempts=2, done=5))

    row = await live(store, "g")
    assert (row.version, row.due_ms, row.attempts, row.done, row.state) == (2, 99, 2, 5, State.SUBMITTED)


@pytest.mark.parametrize("parked", [True, False])
async def test_parked_is_durable_and_keeps_the_rest(store: Store, parked: bool) -> None:
    await flush(store, plain("g"))
    await flush(store, Reschedule("g", 1, 99, attempts=2, done=5))
    await flush(store, Park("g", 2, parked=parked, due_ms=123))

    row = await live(store, "g")
    assert (row.version, row.parked, row.due_ms, row.attempts, row.done) == (3, parked, 123, 2, 5)


async def test_parking_may_set_attempts_and_done_in_the_same_change(store: Store) -> None:
    await flush(store, plain("g"), plain("other"))
    await flush(store, Reschedule("g", 1, 99, attempts=2, done=5))
    await flush(store, Park("g", 2, parked=True, due_ms=1, attempts=3, done=7), Park("other", 1, parked=True, due_ms=1))
    parked = await live(store, "g")
    await flush(store, Park("g", 3, parked=False, due_ms=2, attempts=0))

    again = await live(store, "g")
    assert (parked.parked, parked.attempts, parked.done) == (True, 3, 7)
    assert (again.parked, again.attempts, again.done) == (False, 0, 7)
    assert (await live(store, "other")).attempts == 0


async def test_a_redirect_brings_another_body_and_all_attempts_and_leaves_the_rest(
    store: Store, clock: SetClock
) -> None:
    await flush(store, plain("g", body=b"old"))
    await flush(store, Reschedule("g", 1, 99, attempts=2, done=5))
    await flush(store, Park("g", 2, parked=True, due_ms=99))

    assert (await flush(store, Redirect("g", 3, 123, done=7, body=b"new"))).refused == {}

    assert await store.get("g") == LiveRow(
        "g", State.SUBMITTED, 4, 123, clock.time_ms, clock.time_ms, "submit", 0, True, 7, b"new"
    )


async def test_a_redirect_survives_a_restart_and_is_kept_in_history(
    engine: Engine, tmp_path: Path, clock: SetClock
) -> None:
    store = engine.make(tmp_path, clock)
    await store.start()
    await flush(store, plain("g", body=b"old"))
    attempt = failed_call("g")
    await store.flush(Batch([Redirect("g", 1, 123, done=1, body=b"new"), prepare("beside")], [attempt]))
    await store.stop()

    again = engine.make(tmp_path, clock)
    await again.start()

    row = await live(again, "g")
    assert (row.version, row.due_ms, row.done, row.body, row.owned) == (2, 123, 1, b"new", True)
    assert await again.attempts("g") == [attempt]
    assert (await live(again, "beside")).version == 1
    await flush(again, Finish("g", 2, State.SUCCEEDED, done=1))
    assert (await final(again, "g")).body == b"new"
    await again.stop()


async def test_a_finish_moves_the_row_into_history(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("g"))
    born_ms, clock.time_ms = clock.time_ms, clock.time_ms + 10

    await flush(store, abort("g"))

    assert await store.get("g") == HistoryRow(
        1, 1, "g", State.FAILED, born_ms, clock.time_ms, clock.time_ms, "abort", "aborted", 0, 0, b"body"
    )


async def test_a_delivered_message_keeps_who_decided_it_and_when(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("g"))
    clock.time_ms += 10
    await flush(store, Decide("g", 1, 0, DecidedBy.CHECK_BACK))
    decided_ms, clock.time_ms = clock.time_ms, clock.time_ms + 10

    await flush(store, Finish("g", 2, State.SUCCEEDED, attempts=4, done=3))

    row = await final(store, "g")
    assert (row.decided_by, row.decided_ms, row.finished_ms) == ("check-back", decided_ms, clock.time_ms)
    assert (row.state, row.attempts, row.done) == (State.SUCCEEDED, 4, 3)


async def test_one_flush_applies_changes_of_every_kind(store: Store) -> None:
    await flush(store, *(prepare(gid) for gid in "abcdfh"))

    result = await flush(
        store,
        prepare("e"),
        Decide("a", 1, 0, DecidedBy.SUBMIT),
        Reschedule("b", 1, 5, 1, 0),
        Park("c", 1, parked=True, due_ms=5),
        abort("d"),
        Redirect("f", 1, 5, 0, b"elsewhere"),
        DecideEarly("h", 1, 5, DecidedBy.SUBMIT, 1, 2),
    )

    assert result.refused == {}
    assert [(await live(store, gid)).version for gid in "abcefh"] == [2, 2, 2, 1, 2, 2]
    assert ((await live(store, "f")).state, (await live(store, "h")).body) == (State.PREPARED, b"body")
    assert (await final(store, "d")).state is State.FAILED


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1025, 2500])
async def test_a_batch_of_any_size_is_applied_as_a_whole(store: Store, count: int) -> None:
    gids = [f"g{number:05}" for number in range(count)]

    assert (await flush(store, *(prepare(gid) for gid in gids))).refused == {}
    assert (await flush(store, *(Decide(gid, 1, 0, DecidedBy.SUBMIT) for gid in gids))).refused == {}
    assert (await store.overview()).submitted == count
    assert (await flush(store, *(Finish(gid, 2, State.SUCCEEDED) for gid in gids))).refused == {}
    assert (await final(store, gids[-1])).seq == count
    assert (await store.overview()).submitted == 0


async def test_an_empty_batch_is_no_error(store: Store) -> None:
    assert (await store.flush(Batch([], []))).refused == {}


async def test_two_changes_of_one_gid_in_a_batch_are_a_fault_of_the_caller(store: Store) -> None:
    with pytest.raises(AssertionError, match="at most one change"):
        await flush(store, prepare("g"), prepare("g"))

    assert await store.get("g") is None
