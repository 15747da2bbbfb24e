"""Queues: entries come with the change of their message, in order, and each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.engines import Engine
from tests.support.items import LONE_SURROGATE, MADE, SetClock, abort, final, live, prepare
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Complete, Decide, Finish, FlushResult, Item
from twophase.stores.queue_rows import PAGE_BYTES_MAX, Append, Definition, Entry, Place, Progress, Weight

ORDERS = Append("orders", 0, 0)


def commit(gid: str, version: int = 1) -> Finish:
    """Return the decision about a message that only goes to queues."""
    return Finish(gid, version, State.SUCCEEDED, decided_by="submit", done=1)


async def put(store: Store, *items: Item, appends: Sequence[Append] = (ORDERS,)) -> FlushResult:
    """Flush these items, each with the same entries."""
    return await store.flush(Batch(list(items), [], {}, dict.fromkeys(range(len(items)), tuple(appends))))


async def queued(store: Store, topic: str = "orders", queue: int = 0) -> list[tuple[int, str]]:
    """Return (number, gid) of a queue's entries."""
    return [(entry.number, entry.gid) for entry in await store.queue_page(topic, queue, 0, 1_000)]


async def test_a_decision_appends_in_its_commit(store: Store, clock: SetClock) -> None:
    await put(store, prepare("g", body=b"half"), appends=())
    assert await queued(store) == []

    result = await put(store, commit("g"))

    assert result.numbers == {0: (0,)}
    assert await store.queue_page("orders", 0, 0, 10) == [Entry(0, "g", 0, clock.time_ms, b"half")]
    row = await final(store, "g")
    assert (row.state, row.seq, row.body, row.decided_by) == (State.SUCCEEDED, 1, b"half", "submit")


async def test_a_refused_item_appends_nothing(store: Store) -> None:
    await put(store, prepare("g"), prepare("h"), appends=())
    await put(store, commit("g"))
    before = await final(store, "g")

    result = await put(store, commit("g"), commit("h"), abort("unknown"))

    assert (result.refused, result.numbers) == ({0: before, 2: None}, {1: (1,)})
    assert await queued(store) == [(0, "g"), (1, "h")]


async def test_a_complete_message_is_in_history_and_in_its_queue_at_once(store: Store, clock: SetClock) -> None:
    result = await put(store, Complete("a", 1, b"A", "shop"), Complete("b", 1, b"B"))

    assert (result.refused, result.numbers) == ({}, {0: (0,), 1: (1,)})
    row = await final(store, "a")
    assert (row.node, row.seq, row.state, row.body, row.owner) == (1, 1, State.SUCCEEDED, b"A", "shop")
    assert (row.created_ms, row.decided_ms, row.finished_ms) == (clock.time_ms,) * 3
    assert (row.decided_by, row.done, (await final(store, "b")).seq) == ("submit", 1, 2)
    assert [entry.body for entry in await store.queue_page("orders", 0, 0, 10)] == [b"A", b"B"]


async def test_a_complete_message_of_a_taken_gid_is_refused(store: Store) -> None:
    await put(store, prepare("live"), appends=())
    await put(store, Complete("ended", 1, b"first"))
    known = {0: await live(store, "live"), 1: await final(store, "ended")}

    result = await put(store, Complete("live", 1, b""), Complete("ended", 1, b"second"), Complete("new", 1, b""))

    assert (result.refused, result.numbers) == (known, {2: (1,)})
    assert (await final(store, "new")).seq == 2
    assert (await live(store, "live")).body == b"body"
    assert await queued(store) == [(0, "ended"), (1, "new")]


async def test_history_has_no_gaps_among_completes_and_finishes(store: Store) -> None:
    await put(store, prepare("g"), prepare("h"), appends=())

    await put(store, Complete("a", 1, b""), commit("g"), commit("h", 9), Complete("a2", 1, b""))
    await put(store, Complete("a", 1, b""))
    await put(store, commit("h"))

    seqs = {gid: (await final(store, gid)).seq for gid in ("a", "g", "a2", "h")}
    assert sorted(seqs.values()) == [1, 2, 3, 4]
    assert seqs["h"] == 4


async def test_poison_does_not_keep_its_neighbours_from_their_queue(store: Store) -> None:
    result = await put(store, Complete("a", 1, b""), Complete("p" + LONE_SURROGATE, 1, b""), Complete("b", 1, b""))

    assert set(result.refused) == {1}
    assert set(result.numbers) == {0, 2}
    assert await queued(store) == [(0, "a"), (1, "b")]


async def test_entries_of_several_queues_each_have_numbers_from_0(store: Store) -> None:
    both = (Append("orders", 1, 0), Append("bills", 0, 1))

    result = await put(store, Complete("a", 3, b""), Complete("b", 3, b""), appends=both)

    assert result.numbers == {0: (0, 0), 1: (1, 1)}
    assert await store.queue_ends("orders") == {1: 2}
    assert await queued(store, "bills") == [(0, "a"), (1, "b")]
    assert await store.queue_place("b", 1) == Place("bills", 0, 1)
    assert await store.queue_place("b", 2) is None


async def test_an_entry_beside_other_branches_is_read_before_and_after_its_message_ends(store: Store) -> None:
    await put(store, prepare("g", body=b"mixed"), appends=())
    await put(store, Decide("g", 1, 0, "submit"))
    assert [entry.body for entry in await store.queue_page("orders", 0, 0, 10)] == [b"mixed"]

    await put(store, Finish("g", 2, State.SUCCEEDED), appends=())

    assert [entry.body for entry in await store.queue_entries("orders", 0, [0, 5])] == [b"mixed"]


async def test_a_page_ends_with_its_limit_or_with_enough_bytes(store: Store) -> None:
    large = bytes(PAGE_BYTES_MAX // 2)
    await put(store, *(Complete(f"g{number}", 1, large) for number in range(4)))

    assert [entry.number for entry in await store.queue_page("orders", 0, 1, 1)] == [1]
    assert [entry.number for entry in await store.queue_page("orders", 0, 0, 10)] == [0, 1]
    assert await store.queue_page("orders", 0, 4, 10) == []


async def test_progress_is_written_with_a_flush_and_alone(store: Store) -> None:
    first = Progress("group", "orders", 0, 3, b"\x00")
    await store.flush(Batch([prepare("g")], [], progress=[first, Progress("other", "orders", 1, 7, b"")]))
    assert await store.queue_progress("group", "orders") == [first]

    await store.flush(Batch([], [], progress=[Progress("group", "orders", 0, 5, b"")]))

    assert await store.queue_progress("group", "orders") == [Progress("group", "orders", 0, 5, b"")]
    assert await store.queue_progress("group", "bills") == []


async def test_the_first_definition_of_a_name_stands(store: Store) -> None:
    topic = Definition("topic", "orders", "one")

    assert await store.define_queue(topic, MADE) == topic
    assert await store.define_queue(Definition("topic", "orders", "two"), MADE) == topic
    assert await store.define_queue(Definition("group", "orders", "three"), MADE) == Definition(
        "group", "orders", "three"
    )
    assert {(one.kind, one.text) for one in await store.queue_definitions()} == {("topic", "one"), ("group", "three")}


async def test_history_stays_while_a_queue_needs_its_body(store: Store, clock: SetClock) -> None:
    await put(store, Complete("queued", 1, b"body"))
    await put(store, Complete("plain", 1, b""), appends=())
    clock.time_ms += 10_000

    assert (await store.purge(clock.time_ms - 1, 100)).history == 1
    assert await store.get("plain") is None
    assert [entry.body for entry in await store.queue_page("orders", 0, 0, 10)] == [b"body"]

    assert await store.purge_queues(clock.time_ms - 1, 100) == 1
    assert (await store.purge(clock.time_ms - 1, 100)).history == 1


async def test_cleaning_keeps_what_a_group_has_not_done_and_what_is_young(store: Store, clock: SetClock) -> None:
    await put(store, *(Complete(f"g{number}", 1, b"") for number in range(3)))
    clock.time_ms += 10_000
    await put(store, Complete("young", 1, b""))
    done = [Progress("slow", "orders", 0, 1, b""), Progress("fast", "orders", 0, 4, b"")]
    await store.flush(Batch([], [], progress=done))

    assert await store.purge_queues(clock.time_ms - 1, 100) == 1
    assert [number for number, _ in await queued(store)] == [1, 2, 3]

    await store.flush(Batch([], [], progress=[Progress("slow", "orders", 0, 4, b"")]))
    assert await store.purge_queues(clock.time_ms - 1, 1) == 1
    assert await store.purge_queues(clock.time_ms - 1, 100) == 1
    assert await queued(store) == [(3, "young")]


async def test_cleaning_keeps_a_queue_of_which_a_group_of_the_topic_has_done_nothing(
    store: Store, clock: SetClock
) -> None:
    await put(store, Complete("a", 3, b""), appends=(ORDERS, Append("orders", 1, 1)))
    clock.time_ms += 10_000
    await store.flush(Batch([], [], progress=[Progress("group", "orders", 0, 1, b"")]))

    assert await store.purge_queues(clock.time_ms - 1, 100) == 1
    assert await queued(store, queue=1) == [(0, "a")]

    await store.flush(Batch([], [], progress=[Progress("group", "orders", 1, 1, b"")]))
    assert await store.purge_queues(clock.time_ms - 1, 100) == 1


async def test_the_weights_of_entries_are_the_bytes_of_their_messages(store: Store, clock: SetClock) -> None:
    stored_ms = clock.time_ms
    large = bytes(1024 * 1024)
    await put(store, Complete("a", 1, b"123"), Complete("b", 1, large))
    await put(store, prepare("c", body=b"12345"), appends=())
    await put(store, Decide("c", 1, 0, "submit"), appends=(Append("orders", 1, 0),))
    await put(store, Complete("d", 1, b"1"), appends=(Append("bills", 0, 0),))

    found = await store.queue_weights("orders", [(0, 1), (1, 0), (0, 0), (0, 7), (5, 0)])

    assert found.archived_until_ms is None
    assert sorted(found.entries, key=lambda one: (one.queue, one.number)) == [
        Weight(0, 0, stored_ms, 3),
        Weight(0, 1, stored_ms, len(large)),
        Weight(1, 0, stored_ms, 5),
    ]
    assert (await store.queue_weights("orders", [])).entries == []


async def test_an_archive_that_has_not_got_an_entry_keeps_it_and_is_told_with_the_weights(
    store: Store, clock: SetClock, engine: Engine, tmp_path: Path
) -> None:
    await put(store, Complete("a", 1, b""))
    clock.time_ms += 10_000
    await put(store, Complete("b", 1, b""))
    until_ms = clock.time_ms
    engine.archived(tmp_path, until_ms)
    clock.time_ms += 10_000

    assert await store.purge_queues(0, 100, {"orders": clock.time_ms}) == 1
    assert await queued(store) == [(1, "b")]
    assert (await store.queue_weights("orders", [(0, 1)])).archived_until_ms == until_ms


async def test_a_clock_that_was_ahead_makes_no_hole(store: Store, clock: SetClock) -> None:
    clock.time_ms += 10_000
    await put(store, Complete("dated-ahead", 1, b""))
    clock.time_ms -= 10_000
    await put(store, Complete("older", 1, b""))

    assert await store.purge_queues(clock.time_ms + 1, 100) == 0
    assert await queued(store) == [(0, "dated-ahead"), (1, "older")]

    assert await store.purge_queues(clock.time_ms + 10_001, 100) == 2


async def test_a_reader_beside_the_flushes_sees_no_gap(store: Store) -> None:
    async def write() -> None:
        for round_ in range(30):
            await put(store, *(Complete(f"g{round_}-{number}", 1, b"") for number in range(10)))

    writing = asyncio.create_task(write())
    seen = 0
    while not writing.done():
        numbers = [number for number, _ in await queued(store)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= seen
        seen = len(numbers)
    await writing
    assert len(await queued(store)) == 300
