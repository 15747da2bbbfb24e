"""The group commit: one durable commit for all changes of the time before.

The changes came while the last flush was under way. A single change does not wait for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.unit.coordinator.rig import Rig, message
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import StoreError

MakeRig = Callable[..., Awaitable[Rig]]


def sizes(rig: Rig) -> list[int]:
    """Return the number of changes in each flush."""
    return [len(batch.items) for batch in rig.store.batches]


async def test_what_comes_during_a_flush_goes_with_the_next_one(rig: Rig) -> None:
    rig.store.open.clear()
    first = rig.prepare_soon(message("first"))
    await rig.until(lambda: rig.coordinator._machine.group_commit._in_flush == 1)
    others = [rig.prepare_soon(message(f"g{number}")) for number in range(50)]
    rig.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 51
    assert sizes(rig) == [1, 50]


async def test_a_lone_request_waits_for_no_company(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(linger_ms=3_600_000))
    assert (await rig.prepare(message("g"))).error is None
    assert sizes(rig) == [1]


async def test_a_flush_is_bounded_and_the_rest_follows(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(flush_items_max=20))
    rig.store.open.clear()
    replies = [rig.prepare_soon(message(f"g{number}")) for number in range(50)]
    rig.store.open.set()
    assert [(await reply).error for reply in replies] == [None] * 50
    assert sizes(rig) == [20, 20, 10]


async def test_a_flush_is_bounded_in_bytes_too(rig: Rig) -> None:
    """The bound keeps a flush of many large messages below the statement timeout.

    Without it, such a flush would take too long again and again.
    """
    rig.store.open.clear()
    first = rig.prepare_soon(message("first"))
    await rig.until(lambda: rig.coordinator._machine.group_commit._in_flush == 1)
    large = bytes(3_000_000)
    others = [rig.prepare_soon(message(f"g{number}", "http://bank-b/in", payload=large)) for number in range(12)]
    rig.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 13
    assert sizes(rig) == [1, 5, 5, 2], "16 MB a flush"


async def test_a_finish_without_a_waiting_request_goes_with_the_next_one(make_rig: MakeRig) -> None:
    rig = await make_rig(CoordinatorSettings(linger_ms=3_600_000))
    await rig.submit(message("delivered"))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 1)
    assert (await rig.prepare(message("other"))).error is None
    assert sizes(rig) == [1, 2]


async def test_the_outcomes_of_a_large_flush_are_reported_over_several_turns_of_the_loop(rig: Rig) -> None:
    loop = asyncio.get_running_loop()
    turn, turns = 0, set[int]()
    counting: asyncio.Handle | None = None

    def count() -> None:
        nonlocal turn, counting
        turn += 1
        counting = loop.call_soon(count)

    count()
    rig.store.open.clear()
    replies = [rig.prepare_soon(message(f"g{number}")) for number in range(100)]
    for reply in replies:
        reply.add_done_callback(lambda _: turns.add(turn))
    rig.store.open.set()
    await asyncio.wait(replies)
    assert counting is not None
    counting.cancel()
    assert sizes(rig) == [100]
    assert len(turns) > 1


async def test_a_stop_waits_until_every_outcome_is_reported(rig: Rig) -> None:
    rig.store.open.clear()
    replies = [rig.prepare_soon(message(f"g{number}")) for number in range(600)]
    rig.store.open.set()
    stopping: list[asyncio.Task[None]] = []
    group_commit = rig.coordinator._machine.group_commit

    def stop(_: object) -> None:
        group_commit.halt()
        stopping.append(asyncio.create_task(group_commit.discard(StoreError("stopped"))))

    replies[0].add_done_callback(stop)
    await replies[0]
    await asyncio.wait(stopping)
    assert [reply.done() and reply.result().error for reply in replies] == [None] * 600
