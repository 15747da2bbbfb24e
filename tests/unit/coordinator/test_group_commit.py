"""The group commit: one durable commit for all changes of the time before.

The changes came while the last flush was under way. A single change does not wait for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.unit.coordinator.harness import Harness, message
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import StoreError

MakeRig = Callable[..., Awaitable[Harness]]


def sizes(harness: Harness) -> list[int]:
    """Return the number of changes in each flush."""
    return [len(batch.items) for batch in harness.store.batches]


async def test_what_comes_during_a_flush_goes_with_the_next_one(harness: Harness) -> None:
    harness.store.open.clear()
    first = harness.prepare_soon(message("first"))
    await harness.until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    others = [harness.prepare_soon(message(f"g{number}")) for number in range(50)]
    harness.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 51
    assert sizes(harness) == [1, 50]


async def test_a_lone_request_waits_for_no_company(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(linger_ms=3_600_000))
    assert (await harness.prepare(message("g"))).error is None
    assert sizes(harness) == [1]


async def test_a_flush_is_bounded_and_the_rest_follows(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(flush_items_max=20))
    harness.store.open.clear()
    replies = [harness.prepare_soon(message(f"g{number}")) for number in range(50)]
    harness.store.open.set()
    assert [(await reply).error for reply in replies] == [None] * 50
    assert sizes(harness) == [20, 20, 10]


async def test_a_flush_is_bounded_in_bytes_too(harness: Harness) -> None:
    """The bound keeps a flush of many large messages below the statement timeout.

    Without it, such a flush would take too long again and again.
    """
    harness.store.open.clear()
    first = harness.prepare_soon(message("first"))
    await harness.until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    large = bytes(3_000_000)
    others = [harness.prepare_soon(message(f"g{number}", "http://bank-b/in", payload=large)) for number in range(12)]
    harness.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 13
    assert sizes(harness) == [1, 5, 5, 2], "16 MB a flush"


async def test_a_finish_without_a_waiting_request_goes_with_the_next_one(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(linger_ms=3_600_000))
    await harness.submit(message("delivered"))
    await harness.until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
    assert (await harness.prepare(message("other"))).error is None
    assert sizes(harness) == [1, 2]


async def test_the_outcomes_of_a_large_flush_are_reported_over_several_turns_of_the_loop(harness: Harness) -> None:
    loop = asyncio.get_running_loop()
    turn, turns = 0, set[int]()
    counting: asyncio.Handle | None = None

    def count() -> None:
        nonlocal turn, counting
        turn += 1
        counting = loop.call_soon(count)

    count()
    harness.store.open.clear()
    replies = [harness.prepare_soon(message(f"g{number}")) for number in range(100)]
    for reply in replies:
        reply.add_done_callback(lambda _: turns.add(turn))
    harness.store.open.set()
    await asyncio.wait(replies)
    assert counting is not None
    counting.cancel()
    assert sizes(harness) == [100]
    assert len(turns) > 1


async def test_a_stop_waits_until_every_outcome_is_reported(harness: Harness) -> None:
    harness.store.open.clear()
    replies = [harness.prepare_soon(message(f"g{number}")) for number in range(600)]
    harness.store.open.set()
    stopping: list[asyncio.Task[None]] = []
    group_commit = harness.coordinator._machine.group_commit

    def stop(_: object) -> None:
        group_commit.halt()
        stopping.append(asyncio.create_task(group_commit.discard(StoreError("stopped"))))

    replies[0].add_done_callback(stop)
    await replies[0]
    await asyncio.wait(stopping)
    assert [reply.done() and reply.result().error for reply in replies] == [None] * 600
