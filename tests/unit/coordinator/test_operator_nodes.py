"""An operator reaches any of several nodes.

The node that was asked takes the message over, and its old owner leaves it alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, message
from tests.unit.coordinator.nodes import Node, Nodes
from twophase.coordinator.dispatch import force_stop
from twophase.coordinator.dispatch.check_back import CheckBack
from twophase.coordinator.operator import Act
from twophase.core.errors import InvalidRequest, Overloaded, StateConflict
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.redirect import Move, Redirection
from twophase.destinations.base import Answer
from twophase.stores.rows import AttemptKind, DecidedBy, HistoryRow

EVE = Act("eve", "why not")
REFUSED = Answer(500, b"no")
ELSEWHERE = "http://bank-c/in"


async def submitted_at_a(nodes: Nodes) -> None:
    nodes.a.destination.script[IN].extend([REFUSED] * 50)
    await nodes.a.submit(message("g", retry_interval_ms=20_000))
    await until(lambda: len(nodes.a.destination.calls) == 1)
    await until(lambda: nodes.a.rescheduled() == ["g"])


async def come_due(nodes: Nodes) -> None:
    nodes.clock.advance(36_000)
    nodes.shared.renew()


async def test_a_stop_at_another_node_ends_the_calls_of_the_owner(nodes: Nodes) -> None:
    await submitted_at_a(nodes)

    reply = await nodes.b.coordinator.operator.stop("g", EVE)
    assert (reply.error, reply.state) == (None, State.FAILED)
    await come_due(nodes)
    await until(lambda: nodes.a.active == 0)

    assert len(nodes.a.destination.calls) == 1
    row = await nodes.shared.get("g")
    assert isinstance(row, HistoryRow)
    assert (row.state, row.decided_by) == (State.FAILED, DecidedBy.OPERATOR)


async def test_a_park_at_another_node_holds_for_the_owner(nodes: Nodes) -> None:
    await submitted_at_a(nodes)

    assert (await nodes.b.coordinator.operator.park("g", EVE)).error is None
    await come_due(nodes)
    await until(lambda: nodes.a.active == 0)

    assert len(nodes.a.destination.calls) == 1
    assert (await nodes.a.coordinator.operator.redrive("g", EVE)).error is None
    nodes.a.destination.script[IN].clear()
    nodes.a.coordinator.tick()
    await nodes.until_state("g", State.SUCCEEDED)


async def test_a_retry_now_at_another_node_is_done_there(nodes: Nodes) -> None:
    await submitted_at_a(nodes)

    assert (await nodes.b.coordinator.operator.retry_now("g", EVE)).error is None
    nodes.b.coordinator.tick()

    await nodes.until_state("g", State.SUCCEEDED)
    assert nodes.b.destination.urls() == [IN]


async def test_a_stop_at_another_node_asks_from_there(nodes: Nodes) -> None:
    await nodes.a.prepare(message("g"))

    reply = await nodes.b.coordinator.operator.stop("g", EVE)

    assert isinstance(reply.error, StateConflict)
    assert nodes.b.destination.urls()[0] == CHECK
    assert nodes.a.destination.urls() == []
    await nodes.until_state("g", State.SUCCEEDED)


async def test_a_result_that_reaches_the_owner_after_a_stop_elsewhere_is_recorded(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    await until(lambda: IN in nodes.a.destination.urls())

    assert (await nodes.b.coordinator.operator.stop("g", EVE)).error is None
    nodes.a.destination.release(IN)

    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await nodes.b.coordinator.query("g")
            assert view is not None
            late = [one.error for one in view.log if one.kind is AttemptKind.BRANCH]
            if late:
                break
            await asyncio.sleep(0.005)
    assert view.state is State.FAILED
    assert late == ["all_succeeded arrived late, the message was failed"]


async def test_a_submit_and_a_stop_at_two_nodes_end_in_one_fate(nodes: Nodes) -> None:
    for number in range(20):
        gid = f"g{number}"
        await nodes.a.prepare(message(gid))
        nodes.b.destination.script[CHECK].append(Answer(500))
        stop, submit = await asyncio.gather(nodes.b.coordinator.operator.stop(gid, EVE), nodes.a.submit(message(gid)))

        row = await nodes.shared.get(gid)
        assert row is not None
        assert (row.state is State.FAILED) == (stop.error is None)
        if submit.error is not None:
            assert row.state is State.FAILED
        elif isinstance(row, HistoryRow) and row.state is State.FAILED:
            assert row.reason == "stopped by eve: why not", "submitted before the operator looked, and stopped as such"


async def test_what_waits_at_any_node_is_tried_now(nodes: Nodes) -> None:
    for node, gid in ((nodes.a, "a"), (nodes.b, "b")):
        node.destination.script[f"http://{gid}/in"].append(REFUSED)
        await node.submit(message(gid, f"http://{gid}/in", retry_interval_ms=600_000))
        await until(lambda node=node: len(node.rescheduled()) == 1)  # type: ignore[misc]

    assert await nodes.b.coordinator.operator.retry_later_ones(100_000, 10, EVE) == (2, False)
    nodes.b.coordinator.tick()

    await nodes.until_state("a", State.SUCCEEDED)
    await nodes.until_state("b", State.SUCCEEDED)
    assert sorted(nodes.b.destination.urls()) == ["http://a/in", "http://b/in", "http://b/in"]


def anything(_: Message, __: Sequence[Move]) -> None:
    """Accept every address."""


async def test_a_redirect_at_another_node_is_done_there_and_the_owner_calls_the_old_address_no_more(
    nodes: Nodes,
) -> None:
    await submitted_at_a(nodes)

    reply, _ = await nodes.b.coordinator.operator.redirect("g", Redirection(ELSEWHERE), EVE, anything)
    nodes.b.coordinator.tick()
    await nodes.until_state("g", State.SUCCEEDED)
    await come_due(nodes)
    await until(lambda: nodes.a.active == 0)

    assert reply.error is None
    assert nodes.b.destination.urls() == [ELSEWHERE]
    assert nodes.a.destination.urls() == [IN]


async def test_a_redirect_back_at_the_former_owner_goes_by_the_row_and_not_by_its_memory(nodes: Nodes) -> None:
    await submitted_at_a(nodes)
    nodes.b.destination.hold(ELSEWHERE)
    await nodes.b.coordinator.operator.redirect("g", Redirection(ELSEWHERE), EVE, anything)

    nodes.a.destination.hold(IN)
    back = Redirection(IN, beginning=ELSEWHERE)
    reply, moves = await nodes.a.coordinator.operator.redirect("g", back, EVE, anything)

    assert reply.error is None, "the call goes there, whatever this node remembers"
    assert [(move.before, move.after) for move in moves] == [(ELSEWHERE, IN)]
    nodes.a.coordinator.tick()
    await until(lambda: nodes.a.destination.urls() == [IN, IN])
    await nodes.b.coordinator.operator.redirect("g", Redirection(ELSEWHERE), EVE, anything)
    reply, moves = await nodes.a.coordinator.operator.redirect("g", Redirection(IN), EVE, anything)
    assert [(move.before, move.after) for move in moves] == [(ELSEWHERE, IN)], "it does not go there already"
    nodes.a.destination.release(IN)
    nodes.b.destination.release(ELSEWHERE)


@pytest.mark.parametrize("to", [ELSEWHERE, "http://bank-d/in"], ids=["to the same address", "to another one"])
async def test_of_two_redirects_at_once_the_later_one_claims_nothing(nodes: Nodes, to: str) -> None:
    await submitted_at_a(nodes)
    nodes.a.destination.hold(ELSEWHERE)
    nodes.b.gates.open.clear()
    wanted = Redirection(to) if to == ELSEWHERE else Redirection(to, beginning=IN)
    later = asyncio.ensure_future(nodes.b.coordinator.operator.redirect("g", wanted, Act("bob"), anything))
    await until(lambda: nodes.b.gates.held_flushes == 1)
    assert (await nodes.a.coordinator.operator.redirect("g", Redirection(ELSEWHERE), EVE, anything))[1]

    nodes.b.gates.open.set()
    reply, moves = await asyncio.wait_for(later, PATIENCE_S)

    assert moves == ()
    assert isinstance(reply.error, InvalidRequest) == (to != ELSEWHERE)
    assert await until(lambda: told_of_operators(nodes)) == [f"redirected by eve: why not; now {ELSEWHERE}"]
    nodes.a.destination.release(ELSEWHERE)


async def told_of_operators(nodes: Nodes) -> list[str]:
    view = await nodes.b.coordinator.query("g")
    assert view is not None
    return [one.error for one in view.log if one.kind is AttemptKind.OPERATOR]


async def test_a_round_of_the_owner_that_ends_well_after_a_redirect_elsewhere_ends_nothing(nodes: Nodes) -> None:
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    await until(lambda: nodes.a.destination.urls() == [IN])
    nodes.b.destination.hold(ELSEWHERE)

    await nodes.b.coordinator.operator.redirect("g", Redirection(ELSEWHERE), EVE, anything)
    nodes.b.coordinator.tick()
    await until(lambda: nodes.b.destination.urls() == [ELSEWHERE])
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.active == 0)

    row = await nodes.shared.get("g")
    assert row is not None
    assert row.state is State.SUBMITTED, "what the old address answered does not end it"
    nodes.b.destination.release(ELSEWHERE)
    await nodes.until_state("g", State.SUCCEEDED)


async def test_a_stop_whose_producer_is_silent_leaves_nothing_at_the_node_that_asks(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckBack, "timeout_ms", lambda _self, _message: 1)
    monkeypatch.setattr(force_stop, "_PERMIT_WAIT_S", 0.001)
    await nodes.a.prepare(message("g"))
    nodes.b.destination.hold(CHECK)
    reply = await nodes.b.coordinator.operator.stop("g", EVE)
    assert isinstance(reply.error, Overloaded)
    assert nodes.b.active == 1, "its call is under way"
    nodes.b.destination.script[CHECK].append(Answer(500))
    nodes.b.destination.release(CHECK)
    await until(lambda: nodes.b.active == 0)
    assert nodes.a.active == 1


async def test_a_stop_whose_producer_has_a_full_queue_leaves_nothing_at_the_node_that_asks(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.a.prepare(message("g"))
    limiter = nodes.b.coordinator._dispatcher.check_calls.limiter
    monkeypatch.setattr(limiter, "enter", lambda *_args, **_options: False)
    reply = await nodes.b.coordinator.operator.stop("g", EVE)
    assert isinstance(reply.error, Overloaded)
    assert (nodes.a.active, nodes.b.active) == (1, 0)


async def test_a_message_that_moved_while_a_call_to_an_old_address_is_under_way_leaves_with_its_answer(
    nodes: Nodes,
) -> None:
    nodes.a.destination.hold(IN)
    await nodes.a.submit(message("g"))
    await until(lambda: nodes.a.destination.urls() == [IN])
    nodes.a.destination.script[ELSEWHERE].extend([REFUSED] * 50)
    await nodes.a.coordinator.operator.redirect("g", Redirection(ELSEWHERE), EVE, anything)
    nodes.a.coordinator.tick()
    await until(lambda: nodes.a.destination.urls() == [IN, ELSEWHERE])
    await until(lambda: nodes.a.rescheduled() == ["g"])
    assert (await nodes.b.coordinator.operator.park("g", EVE)).error is None
    await come_due(nodes)
    await until(lambda: _unowned(nodes.a))
    nodes.a.destination.release(IN)
    await until(lambda: nodes.a.active == 0)


def _unowned(node: Node) -> bool:
    active = node.coordinator._memory.get("g")
    return active is not None and not active.owned
