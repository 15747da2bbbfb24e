"""Refused items: they change nothing, and the caller learns what stands there."""

from __future__ import annotations

import pytest

from tests.support.items import LONE_SURROGATE, abort, failed_call, final, flush, live, plain, prepare
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Decide, DecideEarly, Finish, Item, Park, Redirect, Rejected, Reschedule
from twophase.stores.rows import DecidedBy

STALE: tuple[Item, ...] = (
    Decide("g", 9, 0, DecidedBy.SUBMIT),
    DecideEarly("g", 9, 0, DecidedBy.SUBMIT, 0, 0),
    Reschedule("g", 9, 0, 0, 0),
    Park("g", 9, parked=True, due_ms=0),
    Redirect("g", 9, 0, 0, b"new"),
    Finish("g", 9, State.FAILED, decided_by=DecidedBy.ABORT),
)
CURRENT: tuple[Item, ...] = (
    Decide("g", 1, 0, DecidedBy.SUBMIT),
    DecideEarly("g", 1, 0, DecidedBy.SUBMIT, 0, 0),
    Reschedule("g", 1, 0, 0, 0),
    Park("g", 1, parked=True, due_ms=0),
    Redirect("g", 1, 0, 0, b"new"),
    Finish("g", 1, State.FAILED, decided_by=DecidedBy.ABORT),
)


def kind(item: Item) -> str:
    return type(item).__name__


async def test_a_gid_that_is_live_is_not_inserted_again(store: Store) -> None:
    await flush(store, prepare("g", body=b"first"))
    before = await store.get("g")

    assert (await flush(store, plain("g", body=b"second"))).refused == {0: before}
    assert await store.get("g") == before


async def test_a_gid_that_is_in_history_is_not_inserted_again(store: Store) -> None:
    await flush(store, prepare("g"))
    await flush(store, abort("g"))
    before = await store.get("g")

    assert (await flush(store, prepare("g"))).refused == {0: before}
    assert await store.get("g") == before


@pytest.mark.parametrize("item", STALE, ids=kind)
async def test_a_change_of_another_version_is_refused_with_the_row_as_it_is(store: Store, item: Item) -> None:
    await flush(store, prepare("g"))
    before = await store.get("g")

    assert (await flush(store, item)).refused == {0: before}
    assert await store.get("g") == before


@pytest.mark.parametrize("item", CURRENT, ids=kind)
async def test_a_change_of_a_final_message_is_refused_with_its_history(store: Store, item: Item) -> None:
    await flush(store, prepare("g"))
    await flush(store, abort("g"))
    before = await final(store, "g")

    assert (await flush(store, item)).refused == {0: before}
    assert await store.get("g") == before


@pytest.mark.parametrize("item", CURRENT, ids=kind)
async def test_a_change_of_an_unknown_gid_is_refused_with_nothing(store: Store, item: Item) -> None:
    assert (await flush(store, item)).refused == {0: None}


async def test_a_submitted_message_is_not_decided_twice(store: Store) -> None:
    await flush(store, plain("g"))
    before = await live(store, "g")

    assert (await flush(store, Decide("g", 1, 0, DecidedBy.CHECK_BACK))).refused == {0: before}
    assert (await flush(store, DecideEarly("g", 1, 0, DecidedBy.SUBMIT, 1, 1))).refused == {0: before}


async def test_neighbours_of_refused_items_are_applied(store: Store) -> None:
    await flush(store, prepare("taken"), prepare("stale"), prepare("ends"), prepare("goes on"), prepare("stale end"))

    result = await flush(
        store,
        prepare("taken"),
        prepare("new"),
        Decide("stale", 7, 0, DecidedBy.SUBMIT),
        Decide("goes on", 1, 0, DecidedBy.SUBMIT),
        abort("stale end", version=7),
        abort("ends"),
    )

    assert sorted(result.refused) == [0, 2, 4]
    assert (await live(store, "new")).state is State.PREPARED
    assert (await live(store, "goes on")).state is State.SUBMITTED
    assert (await final(store, "ends")).seq == 1
    assert (await live(store, "stale end")).version == 1


async def test_a_refused_row_is_reported_as_it_is_after_the_flush(store: Store) -> None:
    """The refused item and the winning change may come in either order.

    The answer shows the row after both.
    """
    await flush(store, prepare("g"))
    await flush(store, Decide("g", 1, 0, DecidedBy.SUBMIT))

    refused = (await flush(store, abort("g", version=1))).refused

    assert refused == {0: await live(store, "g")}


POISON: tuple[Item, ...] = (
    prepare("bad" + LONE_SURROGATE),
    prepare("bad", due_in_ms=2**63),
    prepare("bad", due_in_ms=2**63 - 1),
    Decide("g", 1, 0, LONE_SURROGATE),
    Reschedule("g", 1, 2**70, 0, 0),
    Park("g", 1, parked=True, due_ms=2**70),
    Finish("g", 1, State.FAILED, reason=LONE_SURROGATE, decided_by=DecidedBy.ABORT),
)


@pytest.mark.parametrize("poison", POISON, ids=kind)
@pytest.mark.parametrize("stale_too", [False, True])
async def test_an_item_the_database_rejects_never_fails_its_neighbours(
    store: Store, poison: Item, stale_too: bool
) -> None:
    neighbours = [prepare(f"n{number}") for number in range(20)]
    ends = [prepare(f"e{number}") for number in range(20)]
    await flush(store, prepare("g"), *ends)
    stale = [abort("unknown")] if stale_too else []

    result = await flush(store, *neighbours[:11], poison, *neighbours[11:], *(abort(end.gid) for end in ends), *stale)

    assert isinstance(result.refused.pop(11), Rejected)
    assert result.refused == ({41: None} if stale_too else {})
    assert [(await live(store, one.gid)).version for one in neighbours] == [1] * 20
    assert [(await final(store, end.gid)).seq for end in ends] == list(range(1, 21))
    assert (await live(store, "g")).version == 1


async def test_several_rejected_items_are_each_reported(store: Store) -> None:
    items = [prepare(f"g{number}" + LONE_SURROGATE * (number % 3 == 0)) for number in range(50)]

    refused = (await flush(store, *items)).refused

    assert sorted(refused) == list(range(0, 50, 3))
    assert all(isinstance(one, Rejected) and one.error for one in refused.values())


async def test_evidence_with_impossible_text_is_kept_escaped(store: Store) -> None:
    result = await store.flush(Batch([prepare("g")], [failed_call("g"), failed_call("g", error="\udcff!")]))

    assert result.refused == {}
    assert [attempt.error for attempt in await store.attempts("g")] == ["refused", r"\udcff!"]
