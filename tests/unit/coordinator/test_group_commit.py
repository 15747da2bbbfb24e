"""The group commit: one durable commit for all changes of the time before.

The changes came while the last flush was under way. A single change does not wait for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, Harness, message
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Reply
from twophase.coordinator.state.flush_turns import in_turns
from twophase.core.errors import ContentConflict, Overloaded, StateConflict, StoreError
from twophase.core.lifecycle import State
from twophase.server.identity.caller import Caller
from twophase.stores.batch import Batch, FlushResult

MakeRig = Callable[..., Awaitable[Harness]]


def sizes(harness: Harness) -> list[int]:
    """Return the number of changes in each flush."""
    return [len(batch.items) for batch in harness.store.batches]


async def test_what_comes_during_a_flush_goes_with_the_next_one(harness: Harness) -> None:
    harness.store.open.clear()
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
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
    """A request waits for two flushes at most, so none may be long.

    A very long one would exceed the statement timeout again and again.
    """
    harness.store.open.clear()
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    large = bytes(1_000_000)
    others = [harness.prepare_soon(message(f"g{number}", "http://bank-b/in", payload=large)) for number in range(9)]
    harness.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 10
    assert sizes(harness) == [1, 4, 4, 1], "4 MB a flush"


async def test_a_message_that_is_longer_than_a_flush_goes_alone(harness: Harness) -> None:
    harness.store.open.clear()
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    longest = [message(f"g{number}", "http://bank-b/in", payload=bytes(5_000_000)) for number in range(2)]
    others = [harness.prepare_soon(one) for one in (*longest, message("last"))]
    harness.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 4
    assert sizes(harness) == [1, 1, 1, 1]


@pytest.mark.parametrize(("items_max", "next_size"), [(40, 10), (2_000, 52)])
async def test_owners_take_turns_in_a_flush_of_many(make_harness: MakeRig, items_max: int, next_size: int) -> None:
    """Flushes are shorter while two owners wait, and report in turns."""
    harness = await make_harness(CoordinatorSettings(flush_items_max=items_max))
    harness.store.open.clear()
    eve, stock = Caller("eve"), Caller("stock")
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    others = [harness.prepare_soon(message(f"eve{number}"), eve) for number in range(50)]
    others += [harness.prepare_soon(message(f"stock{number}"), stock) for number in range(2)]
    harness.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 53
    second = [item.gid for item in harness.store.batches[1].items]
    assert second[:4] == ["eve0", "stock0", "eve1", "stock1"]
    assert sizes(harness)[:2] == [1, next_size]
    assert sum(sizes(harness)) == 53


async def test_large_messages_of_an_owner_keep_no_other_waiting(harness: Harness) -> None:
    harness.store.open.clear()
    eve, stock = Caller("eve"), Caller("stock")
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    large = bytes(3_000_000)
    others = [harness.prepare_soon(message(f"eve{n}", "http://bank-b/in", payload=large), eve) for n in range(4)]
    others += [harness.prepare_soon(message(f"stock{number}"), stock) for number in range(9)]
    harness.store.open.set()
    assert [(await reply).error for reply in (first, *others)] == [None] * 14
    assert sizes(harness) == [1, 1, 9, 1, 1, 1]


async def test_one_owner_leaves_room_for_the_changes_of_others(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(waiting_max=8))
    harness.store.open.clear()
    eve, stock = Caller("eve"), Caller("stock")
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    taken = [harness.prepare_soon(message(f"eve{number}"), eve) for number in range(4)]
    refused = [harness.prepare_soon(message(f"more{number}"), eve) for number in range(4)]
    taken += [harness.prepare_soon(message(f"stock{number}"), stock) for number in range(3)]
    harness.store.open.set()
    assert [type((await reply).error) for reply in refused] == [Overloaded] * 4
    assert [(await reply).error for reply in (first, *taken)] == [None] * 8
    assert (await harness.prepare_soon(message("later"), eve)).error is None


def test_the_first_turn_goes_round() -> None:
    """A change of a whole flush goes within as many flushes as there are owners."""
    owners, sizes, began, order = ["a", "b", "c"] * 3, [20] * 9, "", ""
    for _ in range(6):
        taken = in_turns(owners, sizes, 10, 20, began)
        began = owners[taken[0]]
        order += "".join(owners[index] for index in taken)
    assert order == "abcabc"


async def test_a_finish_without_a_waiting_request_goes_with_the_next_one(make_harness: MakeRig) -> None:
    harness = await make_harness(CoordinatorSettings(linger_ms=3_600_000))
    await harness.submit(message("delivered"))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
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


async def test_entries_of_queues_go_with_their_own_change_when_a_flush_takes_a_part(
    make_harness: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one change is refused, and the flush of some fails."""
    harness = await make_harness(CoordinatorSettings(flush_items_max=40))
    for name in ("eve", "stock"):
        await harness.coordinator.queues.topic("", f"of-{name}")
    assert (await harness.submit(message("eve3", "http://bank-b/in", check_url=""))).error is None
    await harness.until_state("eve3", State.SUCCEEDED)
    harness.store.batches.clear()
    harness.store.open.clear()
    first = harness.prepare_soon(message("first"))
    await until(lambda: harness.coordinator._machine.group_commit._in_flush == 1)
    replies: dict[str, asyncio.Future[Reply]] = {}
    for number in range(60):
        for name in ("eve", "stock"):
            url = "http://bank-b/in" if number % 4 == 1 else f"queue://of-{name}?id={number}"
            gid, reply = f"{name}{number}", asyncio.get_running_loop().create_future()
            harness.coordinator.submit(message(gid, url, check_url=""), reply.set_result, None, Caller(name))
            replies[gid] = reply
    batches: list[Batch] = []
    flush = harness.store.flush

    async def second_fails(batch: Batch) -> FlushResult:
        batches.append(batch)
        if len(batches) == 2:
            raise StoreError("no")
        return await flush(batch)

    monkeypatch.setattr(harness.store, "flush", second_fails)
    harness.store.open.set()
    assert (await first).error is None
    done = {gid: (await asyncio.wait_for(reply, PATIENCE_S)).error for gid, reply in replies.items()}

    assert len(batches) > 4
    failed = {item.gid for item in batches[1].items}
    assert len(failed) > 1
    assert {gid for gid, error in done.items() if isinstance(error, StoreError)} == failed
    assert isinstance(done["eve3"], (ContentConflict, StateConflict))
    for name in ("eve", "stock"):
        entries = await harness.store.queue_page(f"of-{name}", 0, 0, 100)
        wanted = [f"{name}{n}" for n in range(60) if n % 4 != 1 and f"{name}{n}" not in failed | {"eve3"}]
        assert [entry.gid for entry in entries] == wanted
        assert [entry.number for entry in entries] == list(range(len(wanted)))
    assert not harness.coordinator._machine.group_commit._appends
