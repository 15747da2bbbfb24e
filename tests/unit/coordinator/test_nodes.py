"""Two coordinators on one store.

A request may reach either node, and each message has one owner that drives it.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, message, set_back
from tests.unit.coordinator.nodes import Node, Nodes
from tests.unit.coordinator.shared_store import LEASE_MS
from twophase.core.errors import (
    ConfigurationError,
    ContentConflict,
    NotYetDelivered,
    ShuttingDown,
    StateConflict,
    StoreFenced,
    StoreUnavailable,
)
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Park
from twophase.stores.rows import HistoryRow

OUT = "http://bank-c/in"


async def test_a_submit_at_another_node_makes_the_message_that_nodes(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    assert (await nodes.b.submit(message("g"))).error is None
    await nodes.until_state("g", State.SUCCEEDED)
    assert (nodes.a.destination.urls(), nodes.b.destination.urls()) == ([], [IN])


async def test_the_first_node_asks_no_producer_about_what_moved_and_forgets_it(nodes: Nodes) -> None:
    for number in range(5):
        await nodes.a.prepare(message(f"g{number}"))
    for number in range(4):
        await nodes.b.submit(message(f"g{number}"))
    await nodes.come_due()
    await nodes.until_state("g4", State.SUCCEEDED)
    await until(lambda: nodes.a.active == 0)
    assert nodes.a.destination.urls() == [CHECK, IN]


async def test_many_that_moved_are_found_out_in_few_questions(nodes: Nodes) -> None:
    nodes.clock.stand_still()  # no lease ends while a slow machine takes them all
    said = [message(f"g{number}") for number in range(3_000)]
    for node in (nodes.a, nodes.b):
        begin = node.coordinator.prepare if node is nodes.a else node.coordinator.submit
        await asyncio.gather(*[node.ask(lambda told, one=one, begin=begin: begin(one, told)) for one in said])  # type: ignore[misc]
    assert nodes.a.active == 3_000
    await nodes.come_due()
    await until(lambda: nodes.a.active == 0)
    assert sum(nodes.a.gates.asked) == 3_000
    assert len(nodes.a.gates.asked) <= 4
    assert CHECK not in nodes.a.destination.urls()


async def test_when_moved_cannot_be_asked_the_message_is_asked_about_later(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    nodes.a.gates.cut = True
    await nodes.come_due()
    await until(lambda: "moved" in nodes.a.gates.cut_off)
    assert nodes.a.destination.calls == []
    nodes.a.gates.cut = False
    nodes.clock.advance(1_100)
    await nodes.until_state("g", State.SUCCEEDED)


async def test_an_abort_at_another_node_decides(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    assert (await nodes.b.abort("g")).error is None
    await nodes.until_state("g", State.FAILED)
    await nodes.come_due()
    await until(lambda: nodes.a.active == 0)
    assert nodes.a.destination.calls == nodes.b.destination.calls == []


async def test_a_prepare_repeated_at_another_node_is_the_same_and_stays_with_the_first(nodes: Nodes) -> None:
    first = await nodes.a.prepare(message("g"))
    again = await nodes.b.prepare(message("g"))
    assert (again.error, again.prepared_at_ms) == (None, first.prepared_at_ms)
    assert nodes.b.active == 0
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)
    assert (nodes.a.destination.urls(), nodes.b.destination.urls()) == ([CHECK, IN], [])


async def test_a_prepare_at_another_node_from_another_database_is_refused(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g", check_url=f"{CHECK}?barrier=one"))
    again = await nodes.b.prepare(message("g", check_url=f"{CHECK}?barrier=two"))
    assert isinstance(again.error, ContentConflict)
    assert nodes.b.active == 0


async def test_a_prepare_repeated_where_it_was_prepared_knows_what_another_node_decided(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    await nodes.b.abort("g")
    assert isinstance((await nodes.a.prepare(message("g"))).error, StateConflict)
    assert nodes.a.active == 0


async def test_a_repeated_prepare_leaves_its_message_due_when_it_was(nodes: Nodes) -> None:
    first = await nodes.a.prepare(message("g"))
    again = await nodes.a.prepare(message("g", request_timeout_ms=77))
    assert (again.error, again.prepared_at_ms) == (None, first.prepared_at_ms)
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.destination.calls[0].timeout_ms != 77


async def test_waiting_for_what_another_node_delivers_is_answered_not_yet(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    reply = await nodes.b.submit(message("g", wait_result=True))
    assert isinstance(reply.error, NotYetDelivered)
    assert nodes.b.active == 0
    nodes.a.destination.release(IN)


async def test_no_verdict_about_a_message_that_moved_changes_nothing(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    nodes.a.destination.hold(CHECK)
    nodes.a.destination.script[CHECK].append(Answer(425))
    await nodes.come_due()
    await until(lambda: nodes.a.destination.urls() == [CHECK])
    nodes.b.destination.hold(IN)
    await nodes.b.submit(message("g"))
    nodes.a.destination.release(CHECK)
    await until(lambda: nodes.a.active == 0)
    row = await nodes.b.store.get("g")
    assert row is not None
    assert (row.state, getattr(row, "owned", None)) == (State.SUBMITTED, True)
    nodes.b.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)


async def test_an_answer_about_a_row_known_to_have_moved_lets_it_go(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    nodes.a.destination.hold(CHECK)
    nodes.a.destination.script[CHECK].append(Answer(425))
    await nodes.come_due()
    await until(lambda: nodes.a.destination.urls() == [CHECK])
    nodes.b.destination.hold(IN)
    await nodes.b.submit(message("g"))
    assert (await nodes.a.submit(message("g"))).error is None
    assert nodes.a.active == 1
    nodes.a.destination.release(CHECK)
    await until(lambda: nodes.a.active == 0)
    assert nodes.a.destination.urls() == [CHECK]
    nodes.b.destination.release(IN)


async def test_a_contrary_verdict_about_a_message_that_moved_is_an_incident(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    nodes.a.destination.hold(CHECK)
    nodes.a.destination.script[CHECK].append(Answer(409))
    await nodes.come_due()
    await until(lambda: nodes.a.destination.urls() == [CHECK])
    await nodes.b.submit(message("g"))
    nodes.a.destination.release(CHECK)
    await until(lambda: nodes.a.active == 0)
    assert [gid for gid, _ in nodes.a.watcher.incidents] == ["g"]
    await nodes.until_state("g", State.SUCCEEDED)


async def test_that_all_branches_succeeded_is_a_fact_for_every_owner_of_the_row(nodes: Nodes) -> None:
    nodes.a.destination.hold(OUT)
    await nodes.a.submit(message("g", IN, OUT))
    await until(lambda: OUT in nodes.a.destination.urls())
    await nodes.b.store.flush(Batch([Park("g", 1, parked=False, due_ms=nodes.clock.now_ms() + 60_000)], []))
    nodes.a.destination.release(OUT)
    await nodes.until_state("g", State.SUCCEEDED)
    row = await nodes.shared.get("g")
    assert isinstance(row, HistoryRow)
    assert row.done == 0b11


async def test_a_failed_round_of_a_message_that_moved_is_only_recorded(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    nodes.a.destination.script[IN].append(Answer(500))
    await nodes.a.submit(message("g"))
    await until(lambda: nodes.a.destination.urls() == [IN])
    due_ms = nodes.clock.now_ms() + 60_000
    await nodes.b.store.flush(Batch([Park("g", 1, parked=False, due_ms=due_ms)], []))
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.active == 0)
    row = await nodes.b.store.get("g")
    assert row is not None
    assert (getattr(row, "version", 0), getattr(row, "due_ms", 0), getattr(row, "owned", None)) == (2, due_ms, True)
    assert len(await nodes.b.store.attempts("g")) == 1


async def test_a_silent_nodes_messages_are_taken_over_after_the_lease(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    await nodes.a.prepare(message("p"))
    nodes.a.gates.cut = True
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.watcher.adopted_messages == 2
    await nodes.come_due()
    await nodes.until_state("p", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [IN, CHECK, IN]


async def test_a_silent_nodes_messages_are_taken_over_after_the_lease_though_the_clock_has_fallen_back(
    nodes: Nodes,
) -> None:
    await nodes.a.prepare(message("g"))
    await nodes.beats(1)
    nodes.a.gates.cut = True
    set_back(nodes.clock, 20 * 60_000)
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    assert "fenced" not in nodes.b.watcher.told
    nodes.clock.advance(20 * 60_000)  # what is due waits for the clock, and for nothing else
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)


async def test_a_fenced_node_forgets_everything_and_rejoins(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    waiting = nodes.a.ask(lambda told: nodes.a.coordinator.submit(message("g", wait_result=True), told))
    nodes.a.gates.cut = True
    await nodes.until_state("g", State.SUCCEEDED)
    written = len(nodes.a.gates.batches)
    nodes.a.gates.rejoins_refused = 2
    nodes.a.gates.cut = False
    assert isinstance((await asyncio.wait_for(waiting, PATIENCE_S)).error, StoreFenced)
    assert isinstance((await nodes.a.submit(message("late"))).error, StoreFenced)
    assert not nodes.a.coordinator.ready
    await until(lambda: nodes.a.coordinator.ready)
    nodes.a.destination.release(IN)
    assert nodes.a.watcher.told.count("fenced") == 1
    assert nodes.a.watcher.told.count("joined") == 2
    assert (await nodes.a.submit(message("new"))).error is None
    await nodes.until_state("new", State.SUCCEEDED)
    batches = nodes.a.gates.batches[written:]
    told = {item.gid for batch in batches for item in batch.items} | {
        one.gid for batch in batches for one in batch.attempts
    }
    assert told == {"new"}, "answers to calls of the ended tenure change nothing"


async def test_why_a_fenced_node_may_not_come_back_is_reported_by_its_own_code(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may have another lease: TP-7000, as at the same node's start."""
    rejoin, refusals = nodes.a.store.rejoin, [ConfigurationError("another lease.")]

    async def rejoin_when_it_may() -> None:
        if refusals:
            raise refusals.pop()
        await rejoin()

    monkeypatch.setattr(nodes.a.store, "rejoin", rejoin_when_it_may)
    nodes.shared.end(nodes.a.store)

    await until(lambda: nodes.a.watcher.told.count("joined") == 2)
    assert nodes.a.watcher.failures == [ConfigurationError.code]


async def test_requests_in_a_flush_that_meets_the_fence_are_answered_and_the_node_continues(nodes: Nodes) -> None:
    nodes.a.gates.open.clear()
    replies = [
        nodes.a.ask(lambda told, n=n: nodes.a.coordinator.prepare(message(f"g{n}"), told))  # type: ignore[misc]
        for n in range(3)
    ]
    await until(lambda: nodes.a.gates.held_flushes == 1)
    replies += [nodes.a.ask(lambda told: nodes.a.coordinator.submit(message("g1"), told))]
    nodes.shared.end(nodes.a.store)
    nodes.a.gates.open.set()
    for reply in replies:
        assert isinstance((await asyncio.wait_for(reply, PATIENCE_S)).error, StoreFenced)
    await until(lambda: nodes.a.coordinator.ready)
    assert nodes.a.active == 0
    assert (await nodes.a.prepare(message("g0"))).error is None


async def test_an_answer_that_comes_while_a_fenced_node_forgets_changes_nothing_in_its_next_epoch(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a write would make the node that forgot the message its owner.

    The node that has adopted the message would then be refused.
    """

    async def look_up_until_cancelled(gid: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            nodes.a.destination.release(IN)

    nodes.a.destination.hold(IN)
    nodes.b.destination.hold(IN)
    nodes.a.destination.script[IN].append(Answer(500))
    await nodes.a.submit(message("g"))
    await until(lambda: nodes.a.destination.urls() == [IN])
    monkeypatch.setattr(nodes.a.store, "get", look_up_until_cancelled)
    unanswered = nodes.a.ask(lambda told: nodes.a.coordinator.abort("looked up", told))
    nodes.a.gates.rejoins_refused = 1_000_000
    nodes.shared.end(nodes.a.store)
    assert isinstance((await asyncio.wait_for(unanswered, PATIENCE_S)).error, StoreFenced)
    await until(lambda: nodes.b.destination.urls() == [IN])
    nodes.a.gates.rejoins_refused = 0
    await until(lambda: nodes.a.coordinator.ready)
    monkeypatch.undo()
    assert (await nodes.a.submit(message("new", OUT))).error is None
    await nodes.until_state("new", State.SUCCEEDED)
    nodes.b.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.rescheduled() == []


async def test_a_fenced_node_takes_its_messages_back_when_no_node_was_faster(nodes: Nodes) -> None:
    await nodes.b.coordinator.stop()
    await nodes.a.prepare(message("g"))
    nodes.shared.end(nodes.a.store)
    await until(lambda: nodes.a.watcher.told.count("joined") == 2)
    await until(lambda: nodes.a.watcher.adopted_messages == 1)
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)


async def test_what_is_adopted_while_a_request_about_it_is_answered_is_not_forgotten(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    nodes.b.gates.answers.clear()
    repeated = nodes.b.ask(lambda told: nodes.b.coordinator.prepare(message("g"), told))
    await until(lambda: nodes.b.gates.held_answers == 1)  # the store's answer is known: another node owns the row
    nodes.a.gates.cut = True
    nodes.shared.end(nodes.a.store)
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    await until(lambda: any("g" in page for page in nodes.b.gates.pages))
    nodes.b.gates.answers.set()
    assert (await asyncio.wait_for(repeated, PATIENCE_S)).error is None
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.watcher.overdue_messages == 0


async def test_what_comes_back_by_adoption_while_it_is_thought_to_have_moved_is_not_forgotten(nodes: Nodes) -> None:
    await nodes.b.prepare(message("g"))
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    nodes.b.gates.answers.clear()
    await nodes.come_due()
    await until(lambda: bool(nodes.b.gates.asked) and nodes.b.gates.held_answers == 1)
    read = len(nodes.b.gates.pages)
    nodes.a.gates.cut = True
    nodes.shared.end(nodes.a.store)
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    await until(lambda: any("g" in page for page in nodes.b.gates.pages[read:]))
    nodes.b.gates.answers.set()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [IN]
    assert nodes.b.watcher.overdue_messages == 0


async def test_rows_that_came_by_an_adoption_whose_answer_was_lost_are_found(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.a.prepare(message("g"))
    adopt = nodes.b.store.adopt

    async def adopt_and_lose(limit: int, *, end_epochs: bool = True) -> int:
        if await adopt(limit, end_epochs=end_epochs):
            raise StoreUnavailable
        return 0

    monkeypatch.setattr(nodes.b.store, "adopt", adopt_and_lose)
    nodes.a.gates.cut = True
    nodes.shared.end(nodes.a.store)
    await until(lambda: nodes.b.active == 1)
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_node_whose_clock_is_an_hour_off_drives_adopted_messages_when_they_are_due(
    nodes: Nodes, hours: int
) -> None:
    wrong = Node(nodes.shared, nodes.clock, hours)
    await nodes.b.coordinator.stop()
    await wrong.coordinator.start()
    try:
        nodes.a.destination.script[IN].append(Answer(500))
        await nodes.a.submit(message("tried", retry_interval_ms=20_000))
        await until(lambda: nodes.a.rescheduled() == ["tried"])
        await nodes.a.prepare(message("g"))
        nodes.a.gates.cut = True
        nodes.shared.end(nodes.a.store)
        await until(lambda: wrong.watcher.adopted_messages == 2)
        await until(lambda: wrong.active == 2)
        wrong.coordinator.tick()
        await wrong.submit(message("between", OUT))
        await nodes.until_state("between", State.SUCCEEDED)
        assert (wrong.destination.urls(), wrong.gates.asked) == ([OUT], [])
        await nodes.come_due()
        await nodes.until_state("g", State.SUCCEEDED)
        await nodes.until_state("tried", State.SUCCEEDED)
    finally:
        await wrong.coordinator.stop()


async def test_after_an_outage_no_node_ends_an_epoch_before_a_lease_of_contact(nodes: Nodes) -> None:
    nodes.clock.stand_still()  # a machine that is slow ends no lease
    await nodes.beats_with_time(6)  # both have had contact for a lease
    nodes.a.gates.cut = nodes.b.gates.cut = True
    await until(lambda: "heartbeat failed" in nodes.b.watcher.told)
    nodes.clock.advance(10 * LEASE_MS)
    nodes.b.gates.cut = False
    await nodes.beats_with_time(2)
    nodes.a.gates.cut = False
    await nodes.beats_with_time(8)
    assert "fenced" not in nodes.a.watcher.told + nodes.b.watcher.told


async def test_what_a_stopped_node_leaves_is_taken_over_at_once(nodes: Nodes) -> None:
    nodes.a.destination.script[IN].append(Answer(500))
    await nodes.a.submit(message("g", retry_interval_ms=20_000))
    await until(lambda: nodes.a.rescheduled() == ["g"])
    await nodes.a.coordinator.drain(1_000)
    await nodes.a.coordinator.stop()
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    nodes.clock.advance(21_000)
    nodes.shared.renew()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [IN]


async def test_a_node_fenced_while_it_drains_takes_no_new_slot(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    waiting = nodes.a.ask(lambda told: nodes.a.coordinator.submit(message("g", wait_result=True), told))
    await until(lambda: nodes.a.destination.urls() == [IN])
    draining = asyncio.create_task(nodes.a.coordinator.drain(1_000))
    await until(lambda: not nodes.a.coordinator.ready)
    nodes.shared.end(nodes.a.store)
    assert isinstance((await asyncio.wait_for(waiting, PATIENCE_S)).error, StoreFenced | ShuttingDown)
    nodes.a.destination.release(IN)
    await draining
    assert not nodes.a.coordinator.ready
    assert nodes.a.watcher.told.count("joined") == 1


@pytest.mark.parametrize("begun", ["before", "after"])
async def test_a_slot_found_while_a_node_drains_is_not_taken(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    asked, answered, held, ends = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    rejoin, stop_retention = nodes.a.store.rejoin, nodes.a.coordinator._retention.stop

    async def rejoin_later() -> None:
        asked.set()
        await answered.wait()
        await rejoin()

    async def stop_later() -> None:
        held.set()
        await ends.wait()
        await stop_retention()

    monkeypatch.setattr(nodes.a.store, "rejoin", rejoin_later)
    monkeypatch.setattr(nodes.a.coordinator._retention, "stop", stop_later)
    nodes.shared.end(nodes.a.store)
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    draining = asyncio.create_task(nodes.a.coordinator.drain(500))
    await asyncio.wait_for(held.wait(), PATIENCE_S)
    if begun == "before":
        answered.set()
        await until(lambda: not nodes.a.coordinator._membership.rejoining)
        ends.set()
        await draining
    else:
        ends.set()
        await draining
        answered.set()
        await until(lambda: not nodes.a.coordinator._membership.rejoining)
    assert not nodes.a.coordinator.ready
    assert isinstance((await nodes.a.submit(message("late"))).error, ShuttingDown)


async def test_while_the_database_is_away_requests_are_refused_and_nothing_is_lost(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))
    nodes.b.gates.cut = True
    nodes.a.gates.cut = True
    assert isinstance((await nodes.a.submit(message("g"))).error, StoreUnavailable)
    assert isinstance((await nodes.a.prepare(message("other"))).error, StoreUnavailable)
    nodes.a.gates.cut = nodes.b.gates.cut = False
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.coordinator.ready
    assert (await nodes.a.prepare(message("other"))).error is None


async def test_a_node_that_cannot_begin_anew_ends_instead_of_standing_idle(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(nodes.a.coordinator._recovery, "restart", fails)
    nodes.shared.end(nodes.a.store)
    error = await asyncio.wait_for(nodes.a.coordinator.fatal(), PATIENCE_S)
    assert "RuntimeError" in error.message
    assert not nodes.a.coordinator.ready
