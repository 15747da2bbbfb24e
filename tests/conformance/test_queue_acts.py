"""Operators' acts on queues: definitions, positions and removals."""

from __future__ import annotations

import asyncio

from tests.conformance.test_queues import ORDERS, put, queued
from tests.support.items import SetClock
from twophase.core.audit_log import AuditEntry, AuditSearch, recomputed
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Complete
from twophase.stores.queue_rows import Append, Definition, Progress, Reader, Span

ACT = AuditEntry("eve", "::1", "change-queue", "orders", after="two")


async def acts(store: Store) -> list[str]:
    """Return the acts in the audit log, oldest first."""
    return [row.act for row in reversed((await store.audit_search(AuditSearch(), 0, 100)).rows)]


async def test_a_definition_takes_the_place_of_the_one_that_is_known(store: Store) -> None:
    one, two = Definition("topic", "orders", "one"), Definition("topic", "orders", "two")
    assert await store.change_queue(None, one, ACT)

    assert not await store.change_queue(None, two, ACT)
    assert not await store.change_queue(two, one, ACT)
    assert list(await store.queue_definitions()) == [one]
    assert await store.change_queue(one, two, ACT)

    assert list(await store.queue_definitions()) == [two]
    assert await acts(store) == ["change-queue"] * 2


async def test_a_first_use_leaves_one_row_in_its_commit(store: Store) -> None:
    wanted = [Definition("topic", "orders", f"{number}") for number in range(20)]
    of = [AuditEntry("eve", "::1", "define-topic", "orders", after=one.text) for one in wanted]

    found = await asyncio.gather(*(store.define_queue(one, row) for one, row in zip(wanted, of, strict=True)))

    (standing,) = await store.queue_definitions()
    assert set(found) == {standing}
    (row,) = await store.audit_chain(0, 100)
    assert (row.who, row.peer, row.target, row.after) == ("eve", "::1", "orders", standing.text)
    assert row.hash == recomputed(row) == (await store.audit_head()).hash
    assert await store.define_queue(wanted[0], of[0]) == standing
    assert (await store.audit_head()).seq == 1


async def test_a_group_is_removed_with_all_it_has_done(store: Store, clock: SetClock) -> None:
    group = Definition("group", "slow", "{}")
    await store.define_queue(group, ACT)
    await put(store, *(Complete(f"g{number}", 1, b"") for number in range(3)))
    progress = [Progress("slow", "orders", 0, 1, b""), Progress("fast", "orders", 0, 3, b"")]
    await store.flush(Batch([], [], progress=progress))
    clock.time_ms += 10_000
    assert await store.purge_queues(clock.time_ms - 1, 100) == 1

    assert not await store.change_queue(Definition("group", "slow", "other"), None, ACT)
    assert len(await store.queue_readers("orders")) == 2
    assert await store.change_queue(group, None, ACT)

    assert await store.queue_definitions() == []
    assert [one.group for one in await store.queue_readers()] == ["fast"]
    assert await store.purge_queues(clock.time_ms - 1, 100) == 2


async def test_a_topic_is_removed_with_what_groups_have_done_of_it_and_its_numbers_go_on(store: Store) -> None:
    topic = Definition("topic", "orders", "{}")
    await store.define_queue(topic, ACT)
    both = (ORDERS, Append("bills", 0, 1))
    await put(store, *(Complete(f"g{number}", 3, b"") for number in range(3)), appends=both)
    progress = [Progress("slow", "orders", 0, 1, b""), Progress("slow", "bills", 0, 1, b"")]
    await store.flush(Batch([], [], progress=progress))

    assert [await store.empty_queue("orders", 0, before, 2) for before in (1, 3, 3)] == [1, 2, 0]
    assert await store.change_queue(topic, None, ACT)

    assert [one.topic for one in await store.queue_readers()] == ["bills"]
    assert await queued(store, "bills") == [(0, "g0"), (1, "g1"), (2, "g2")]
    assert (await put(store, Complete("h", 1, b""))).numbers == {0: (3,)}


async def test_the_extent_of_queues(store: Store, clock: SetClock) -> None:
    began_ms = clock.time_ms
    await put(store, Complete("a", 1, b""), Complete("b", 1, b""))
    clock.time_ms += 10_000
    await put(store, Complete("c", 1, b""))
    await put(store, Complete("d", 1, b""), appends=(Append("orders", 3, 0),))
    await put(store, Complete("e", 1, b""), appends=(Append("bills", 0, 0),))

    whole, third = Span("orders", 0, 0, 3, began_ms), Span("orders", 3, 0, 1, clock.time_ms)
    assert list(await store.queue_spans("orders")) == [whole, third]
    assert list(await store.queue_spans()) == [Span("bills", 0, 0, 1, clock.time_ms), whole, third]
    assert await store.queue_first("orders", 0, 1) == (1, began_ms)
    assert await store.queue_first("orders", 0, 2) == (2, clock.time_ms)
    assert await store.queue_first("orders", 0, 3) is None

    for queue in (0, 3):
        await store.empty_queue("orders", queue, 100, 100)
    assert list(await store.queue_spans("orders")) == [Span("orders", 0, 3, 3, None), Span("orders", 3, 1, 1, None)]


async def test_where_groups_stand(store: Store, clock: SetClock) -> None:
    await store.flush(Batch([], [], progress=[Progress("b", "orders", 1, 7, b"x"), Progress("a", "bills", 0, 2, b"")]))
    now_ms = clock.time_ms

    assert list(await store.queue_readers()) == [
        Reader("a", "bills", 0, 2, now_ms),
        Reader("b", "orders", 1, 7, now_ms),
    ]
    assert [one.group for one in await store.queue_readers("orders")] == ["b"]
    assert [one.topic for one in await store.queue_readers(group="a")] == ["bills"]
    assert await store.queue_readers("bills", "b") == []


async def test_a_reset_is_written_with_its_act(store: Store) -> None:
    await store.flush(Batch([], [], progress=[Progress("a", "orders", 0, 7, b"rest")]))

    await store.reset_queues([Progress("a", "orders", 0, 2, b""), Progress("a", "orders", 1, 4, b"")], ACT)

    assert [(one.queue, one.next_number, one.unfinished) for one in await store.queue_progress("a", "orders")] == [
        (0, 2, b""),
        (1, 4, b""),
    ]
    assert await acts(store) == ["change-queue"]


async def test_a_topic_may_keep_its_entries_longer(store: Store, clock: SetClock) -> None:
    await put(store, Complete("a", 3, b""), appends=(ORDERS, Append("bills", 0, 1)))
    clock.time_ms += 10_000

    assert await store.purge_queues(clock.time_ms - 1, 100, {"orders": clock.time_ms - 20_000}) == 1
    assert [one.first_stored_ms is None for one in await store.queue_spans()] == [True, False]
    assert await store.purge_queues(clock.time_ms - 1, 100, {"nosuch": 0}) == 1


async def test_a_reset_in_another_term_changes_nothing(store: Store) -> None:
    term = await store.own_topic("orders") or 0
    await store.flush(Batch([], [], progress=[Progress("a", "orders", 0, 7, b"", term)]))

    assert not await store.reset_queues([Progress("a", "orders", 0, 2, b"", term + 1)], ACT) or not store.shared
    assert await store.reset_queues([Progress("a", "orders", 0, 3, b"", term)], ACT)

    assert [one.next_number for one in await store.queue_progress("a", "orders")] == [3]
    assert len(await acts(store)) == (1 if store.shared else 2)
