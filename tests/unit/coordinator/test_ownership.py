"""A message may change its owner while a node asks the store about it.

It may become another node's, or the node's own again, before the store answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, message
from tests.unit.coordinator.nodes import Nodes
from twophase.coordinator.operator import Act
from twophase.core.errors import StoreUnavailable
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.destinations.base import Answer


class Question:
    """The store's answer about what moved, held until a test lets it go, or lost."""

    def __init__(self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.lost = False
        self._moved = nodes.a.store.moved
        monkeypatch.setattr(nodes.a.store, "moved", self._ask)

    async def _ask(self, known: Sequence[tuple[str, int]]) -> set[str]:
        self.asked.set()
        await self.answer.wait()
        if self.lost:
            raise StoreUnavailable("it is away.")
        return await self._moved(known)


@pytest.fixture
def question(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Question:
    return Question(nodes, monkeypatch)


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_known_by_then_to_be_another_nodes_is_forgotten_and_not_called(
    nodes: Nodes, question: Question, lost: bool
) -> None:
    question.lost = lost
    await nodes.a.prepare(message("g"))
    nodes.b.destination.hold(IN)
    await nodes.b.submit(message("g"))
    await nodes.come_due()
    await asyncio.wait_for(question.asked.wait(), PATIENCE_S)
    assert (await nodes.a.submit(message("g"))).error is None
    assert nodes.a.active == 1, "it stays for the answer"
    question.answer.set()
    await until(lambda: nodes.a.active == 0)
    nodes.clock.advance(2_000)
    nodes.shared.renew()
    await nodes.beats(1)
    assert nodes.a.destination.urls() == []
    nodes.b.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("durability", list(Durability))
async def test_what_is_decided_here_by_then_is_delivered_here_once(
    nodes: Nodes, question: Question, lost: bool, durability: Durability
) -> None:
    question.lost = lost
    await nodes.a.prepare(message("g", durability=durability))
    await nodes.come_due()
    await asyncio.wait_for(question.asked.wait(), PATIENCE_S)
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g", durability=durability))
    question.answer.set()
    await until(lambda: nodes.a.destination.urls() == [IN])
    nodes.clock.advance(2_000)
    nodes.shared.renew()
    await nodes.beats(1)
    nodes.a.destination.release(IN)
    await nodes.until_state("g", State.SUCCEEDED)
    await until(lambda: nodes.a.active == 0)
    assert nodes.a.destination.urls() == [IN]


async def test_the_log_names_what_failed_when_the_store_does_not_answer(nodes: Nodes, question: Question) -> None:
    question.lost = True
    await nodes.a.prepare(message("g"))
    await nodes.come_due()
    question.answer.set()
    await until(lambda: bool(nodes.a.watcher.flush_failures))
    assert nodes.a.watcher.flush_failures == [f"TP-4009 it is away. {StoreUnavailable.remedy}"]


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_parked_meanwhile_leaves_memory_with_the_answer(
    nodes: Nodes, question: Question, lost: bool
) -> None:
    question.lost = lost
    await nodes.a.prepare(message("g"))
    await nodes.come_due()
    await asyncio.wait_for(question.asked.wait(), PATIENCE_S)
    assert (await nodes.a.coordinator.operator.park("g", Act("eve"))).error is None
    question.answer.set()
    await until(lambda: nodes.a.active == 0)


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_prepared_again_meanwhile_is_asked_about_all_the_same(
    nodes: Nodes, question: Question, lost: bool
) -> None:
    question.lost = lost
    await nodes.a.prepare(message("g"))
    await nodes.come_due()
    await asyncio.wait_for(question.asked.wait(), PATIENCE_S)
    assert (await nodes.a.prepare(message("g"))).error is None
    question.answer.set()
    await nodes.beats(1)
    question.lost = False
    nodes.clock.advance(2_000)
    nodes.shared.renew()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.destination.urls() == [CHECK, IN]


async def test_what_comes_due_while_the_store_confirms_that_it_is_prepared_is_asked_about_all_the_same(
    nodes: Nodes,
) -> None:
    await nodes.a.prepare(message("g"))
    nodes.a.gates.open.clear()
    again = nodes.a.ask(lambda told: nodes.a.coordinator.prepare(message("g"), told))
    await nodes.come_due()
    nodes.a.gates.open.set()
    assert (await asyncio.wait_for(again, PATIENCE_S)).error is None
    nodes.clock.advance(2_000)
    nodes.shared.renew()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.destination.urls() == [CHECK, IN]


async def test_a_message_that_changes_while_its_question_waits_is_not_forgotten(
    nodes: Nodes, question: Question
) -> None:
    await nodes.a.prepare(message("first"))
    await nodes.come_due()
    await asyncio.wait_for(question.asked.wait(), PATIENCE_S)
    await nodes.a.prepare(message("g"))
    await nodes.come_due()
    await nodes.beats(1)
    nodes.a.destination.script[IN].append(Answer(503))
    await nodes.a.submit(message("g"))
    await until(lambda: nodes.a.rescheduled() == ["g"])
    await nodes.come_due()
    await nodes.beats(1)
    question.answer.set()
    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.a.destination.urls().count(IN) >= 2, "the failed branch is tried again"
    assert nodes.a.watcher.overdue_messages == 0, "nothing was forgotten and found again"
    assert nodes.b.destination.urls() == []


async def test_rows_are_driven_also_when_the_answer_of_their_adoption_is_lost(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later answer names them, and they must not wait until they are found overdue."""
    adopt, lost = nodes.b.store.adopt, asyncio.Event()

    async def adopt_and_lose(limit: int, *, end_epochs: bool = True) -> int:
        came = await adopt(limit, end_epochs=end_epochs)
        if came and not lost.is_set():
            lost.set()
            raise StoreUnavailable("it is away.")
        return came

    monkeypatch.setattr(nodes.b.store, "adopt", adopt_and_lose)
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    nodes.a.gates.cut = True
    nodes.shared.end(nodes.a.store)
    await nodes.until_state("g", State.SUCCEEDED)
    assert lost.is_set()
    assert nodes.b.watcher.overdue_messages == 0
