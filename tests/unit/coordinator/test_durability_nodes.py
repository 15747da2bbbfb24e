"""`durability="check-back"` on stores that several nodes share.

Until the submit is flushed, any node may change the row.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, message
from tests.unit.coordinator.nodes import Nodes
from twophase.coordinator.operator import Act
from twophase.core.errors import StoreFull
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.core.redirect import Move, Redirection
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Finish, FlushResult, Insert
from twophase.stores.rows import DecidedBy, HistoryRow

OLD, NEW = "http://old", "http://new"
EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK, "explicit_verdict": True}
COMMITTED = Answer(200, b"{}", "committed")


async def called_early(nodes: Nodes, gid: str = "g") -> int:
    """Let the first node acknowledge a submit and call the branch before any flush.

    The store still holds the message as prepared. Returns its time of birth.
    """
    nodes.a.destination.hold(IN)
    born_ms = (await nodes.a.prepare(message(gid, **EARLY))).prepared_at_ms
    assert (await nodes.a.submit(message(gid, **EARLY))).error is None
    await until(lambda: nodes.a.destination.urls() == [IN])
    row = await nodes.shared.get(gid)
    assert row is not None
    assert row.state is State.PREPARED
    return born_ms


def a_dies(nodes: Nodes) -> None:
    """Cut the first node off from the store, and let its rows be adopted."""
    nodes.a.gates.cut = True
    nodes.shared.end(nodes.a.store)


async def test_a_submit_is_acknowledged_and_its_branches_are_called_before_any_flush(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g", **EARLY))
    nodes.a.gates.open.clear()
    reply = await nodes.a.submit(message("g", **EARLY))
    assert (reply.error, reply.state) == (None, State.SUBMITTED)
    await until(lambda: nodes.a.destination.urls() == [IN])
    row = await nodes.shared.get("g")
    assert row is not None
    assert row.state is State.PREPARED
    nodes.a.gates.open.set()
    await nodes.until_state("g", State.SUCCEEDED)


async def test_a_message_that_succeeds_at_once_is_one_change_and_says_who_decided(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g", **EARLY))
    await nodes.a.submit(message("g", **EARLY))
    await nodes.until_state("g", State.SUCCEEDED)
    await until(lambda: nodes.a.active == 0)
    row = await nodes.shared.get("g")
    assert [type(item) for batch in nodes.a.gates.batches for item in batch.items] == [Insert, Finish]
    assert isinstance(row, HistoryRow)
    assert (row.decided_by, row.done) == (DecidedBy.SUBMIT, 1)


async def test_a_branch_that_fails_makes_the_decision_durable_and_another_node_goes_on(nodes: Nodes) -> None:
    nodes.a.destination.script[IN].append(Answer(500))
    said = message("g", retry_interval_ms=20_000, **EARLY)
    await nodes.a.prepare(said)
    await nodes.a.submit(said)
    await nodes.until_state("g", State.SUBMITTED)
    a_dies(nodes)
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    nodes.clock.advance(21_000)
    nodes.shared.renew()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [IN]


async def test_a_redirect_at_another_node_moves_no_branch_that_had_succeeded_before_the_decision_was_stored(
    nodes: Nodes,
) -> None:
    done, open_ = f"{OLD}/a", f"{OLD}/b"
    nodes.a.destination.script[open_].append(Answer(500))
    said = message("g", done, open_, retry_interval_ms=20_000, **EARLY)
    await nodes.a.prepare(said)
    await nodes.a.submit(said)
    await nodes.until_state("g", State.SUBMITTED)
    _, moves = await nodes.b.coordinator.operator.redirect("g", Redirection(NEW, beginning=OLD), Act(), lambda *_: None)
    assert moves == (Move("02", open_, f"{NEW}/b"),)
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)
    assert (nodes.a.destination.urls(), nodes.b.destination.urls()) == ([done, open_], [f"{NEW}/b"])


async def test_what_a_node_took_with_it_is_found_by_the_check_back_of_another(nodes: Nodes) -> None:
    born_ms = await called_early(nodes)
    a_dies(nodes)
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    nodes.b.destination.script[CHECK].append(COMMITTED)
    nodes.b.destination.hold(IN)
    await nodes.come_due()
    await nodes.until_state("g", State.SUBMITTED)
    horizon = await nodes.b.coordinator.horizon("", "")
    assert horizon.oldest_unfinished_ms == born_ms, "decided late, called early"
    nodes.b.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [CHECK, IN]
    nodes.a.gates.cut = False
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.coordinator.ready and nodes.a.active == 0)
    assert nodes.a.watcher.incidents == nodes.b.watcher.incidents == []


async def test_an_acknowledged_submit_whose_flush_fails_is_recovered_by_the_check_back(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.a.prepare(message("g", **EARLY))
    flush, failed = nodes.a.store.flush, asyncio.Event()

    async def fail_once(batch: Batch) -> FlushResult:
        if batch.items and not failed.is_set():
            failed.set()
            raise StoreFull
        return await flush(batch)

    monkeypatch.setattr(nodes.a.store, "flush", fail_once)
    assert (await nodes.a.submit(message("g", **EARLY))).error is None
    await asyncio.wait_for(failed.wait(), PATIENCE_S)
    nodes.a.destination.script[CHECK].append(COMMITTED)
    await nodes.come_due()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.destination.urls() == [IN, CHECK, IN]


async def test_the_same_submit_at_another_node_meanwhile_is_the_same_decision(nodes: Nodes) -> None:
    await called_early(nodes)
    assert (await nodes.b.submit(message("g", **EARLY))).error is None
    await nodes.until_state("g", State.SUCCEEDED)
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.active == 0)
    assert nodes.a.watcher.incidents == nodes.b.watcher.incidents == []


async def test_a_failed_branch_of_what_another_node_has_submitted_meanwhile_is_left_to_that_node(nodes: Nodes) -> None:
    nodes.a.destination.script[IN].append(Answer(500))
    await called_early(nodes)
    nodes.b.destination.hold(IN)
    assert (await nodes.b.submit(message("g", **EARLY))).error is None
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.active == 0)
    nodes.b.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.watcher.incidents == nodes.b.watcher.incidents == []
    assert (nodes.a.destination.urls(), nodes.b.destination.urls()) == ([IN], [IN])


async def test_an_abort_at_another_node_meanwhile_is_an_incident(nodes: Nodes) -> None:
    await called_early(nodes)
    assert (await nodes.b.abort("g")).error is None
    nodes.a.destination.release(IN)
    await until(lambda: bool(nodes.a.watcher.incidents))
    await until(lambda: nodes.a.active == 0)
    await nodes.until_state("g", State.FAILED)


async def test_the_same_prepare_at_another_node_meanwhile_changes_nothing(nodes: Nodes) -> None:
    await called_early(nodes)
    assert (await nodes.b.prepare(message("g", **EARLY))).error is None
    nodes.a.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == []
    assert nodes.a.watcher.incidents == nodes.b.watcher.incidents == []


async def test_at_a_node_that_does_not_own_the_row_a_submit_is_durable_before_it_is_acknowledged(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g", **EARLY))
    nodes.b.gates.open.clear()
    reply = nodes.b.ask(lambda told: nodes.b.coordinator.submit(message("g", **EARLY), told))
    # The row is read, and shows another owner; the flush that changes it is held.
    await until(lambda: nodes.b.gates.held_flushes == 1)
    assert not reply.done()
    assert nodes.b.destination.urls() == []
    nodes.b.gates.open.set()
    assert (await asyncio.wait_for(reply, PATIENCE_S)).error is None
    await nodes.until_state("g", State.SUCCEEDED)


async def test_a_node_that_adopted_the_row_acknowledges_early_as_the_first_would_have(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g", **EARLY))
    a_dies(nodes)
    await until(lambda: nodes.b.watcher.adopted_messages == 1)
    await until(lambda: nodes.b.active == 1)
    nodes.b.gates.open.clear()
    assert (await nodes.b.submit(message("g", **EARLY))).error is None
    await until(lambda: nodes.b.destination.urls() == [IN])
    nodes.b.gates.open.set()
    await nodes.until_state("g", State.SUCCEEDED)
