"""The replies to prepare, submit and abort, and their times."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.rig import IN, Rig, message
from twophase.core.errors import (
    ContentConflict,
    ContraryDecision,
    NotYetDelivered,
    ShuttingDown,
    StateConflict,
    StoreFull,
    UnknownMessage,
)
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.options import Options
from twophase.core.verdict import BranchResult
from twophase.destinations.base import Answer


async def test_prepare_is_acknowledged_only_when_it_is_durable(rig: Rig) -> None:
    rig.store.open.clear()
    reply = rig.prepare_soon(message("g"))
    other = rig.submit_soon(message("plain", check_url=""))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 2)
    assert not reply.done()
    assert not other.done()
    rig.store.open.set()
    assert (await reply).error is None
    assert await rig.state("g") is State.PREPARED


async def test_no_branch_is_called_before_the_decision_is_durable(rig: Rig) -> None:
    await rig.prepare(message("g"))
    rig.store.open.clear()
    reply = rig.submit_soon(message("g"))
    await rig.until(lambda: rig.coordinator.gauges().waiting_for_store == 1)
    assert rig.destination.calls == []
    rig.store.open.set()
    assert (await reply).error is None
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN]


async def test_a_branch_call_carries_dtms_query_headers_and_the_payload_as_it_came(rig: Rig) -> None:
    await rig.submit(message("g", payload=b'{"amount": 1}', headers=(("x-tenant", "7"),)))
    await rig.until_state("g", State.SUCCEEDED)
    call = rig.destination.calls[0]
    assert call.query == (("branch_id", "01"), ("gid", "g"), ("op", "action"), ("trans_type", "msg"))
    assert call.payload == b'{"amount": 1}'
    assert call.headers[-1] == ("x-tenant", "7")


async def test_the_coordinators_own_headers_go_before_those_of_the_message(rig: Rig) -> None:
    """Receivers read the coordinator's header, which comes first.

    A message that an earlier version accepted may carry the same header.
    """
    rig.coordinator._dispatcher.delivery.carry(("x-twophase-oldest", "1"))
    forged = ("x-twophase-oldest", "9999999999999")
    await rig.submit(message("g", headers=(forged,), trace=(("traceparent", "00-1"),)))
    await rig.until_state("g", State.SUCCEEDED)
    headers = rig.destination.calls[0].headers
    assert [name for name, _ in headers] == ["x-twophase-oldest", "x-twophase-oldest", "traceparent"]
    assert headers[0] != forged


async def test_prepare_repeated_is_the_same_and_keeps_its_first_time(rig: Rig) -> None:
    first = await rig.prepare(message("g"))
    again = await rig.prepare(message("g"))
    assert again.error is None
    assert again.prepared_at_ms == first.prepared_at_ms > 0


async def test_prepare_with_other_branches_under_the_same_gid_is_a_conflict(rig: Rig) -> None:
    await rig.prepare(message("g", IN))
    reply = await rig.prepare(message("g", "http://bank-c/in"))
    assert isinstance(reply.error, ContentConflict)


@pytest.mark.parametrize(
    "asked", ["http://pod-1/check?barrier=two", "http://pod-1/check", "", "http://other/check?barrier=one"]
)
async def test_a_second_prepare_that_would_ask_elsewhere_is_refused_because_one_answer_decides(
    rig: Rig, asked: str
) -> None:
    """The first prepare's barrier table would be asked about the second's transaction.

    It would answer "rolled back" for a transaction that is committed in the other database.
    """
    assert (await rig.prepare(message("g", check_url="http://pod-1/check?tenant=7&barrier=one"))).error is None

    other = await rig.prepare(message("g", check_url=asked))
    same = await rig.prepare(message("g", check_url="http://pod-1/check?barrier=one#here"))

    assert (type(other.error), other.state) == (ContentConflict, State.PREPARED)
    assert same.error is None


async def test_a_second_prepare_of_a_client_that_names_no_database_needs_the_same_check_address(rig: Rig) -> None:
    """The first client to prepare a gid must not choose who answers for another.

    Otherwise its check address would be asked about another client's transaction.
    """
    assert (await rig.prepare(message("g", check_url="http://attacker/evil"))).error is None
    victim = await rig.prepare(message("g", check_url="http://bank-a/check"))
    assert (type(victim.error), victim.state) == (ContentConflict, State.PREPARED)
    assert victim.error is not None
    assert "another check address" in victim.error.message


async def test_a_second_prepare_of_an_open_message_must_fix_the_same_branches(rig: Rig) -> None:
    await rig.prepare(message("g", IN, open=True))
    more = await rig.prepare(message("g", IN, "http://bank-c/in", open=True))
    none = await rig.prepare(Message("g", (), options=Options(open=True)))
    assert isinstance(more.error, ContentConflict)
    assert isinstance(none.error, ContentConflict)


async def test_a_submit_of_an_open_message_may_bring_more_branches(rig: Rig) -> None:
    await rig.prepare(message("g", IN, open=True))
    await rig.submit(message("g", IN, "http://bank-c/in", open=True))
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN, "http://bank-c/in"]


async def test_more_branches_behind_the_submit_of_an_open_message_are_refused_because_none_would_be_called(
    rig: Rig,
) -> None:
    rig.destination.hold(IN)
    await rig.prepare(message("g", IN, open=True))
    assert (await rig.submit(message("g", IN, open=True))).error is None
    reply = await rig.submit(message("g", IN, "http://bank-c/in", open=True))
    assert isinstance(reply.error, ContentConflict)
    assert (await rig.submit(message("g", IN, open=True))).error is None


async def test_submit_with_other_payloads_is_a_conflict_and_delivers_nothing(rig: Rig) -> None:
    await rig.prepare(message("g", payload=b"1"))
    reply = await rig.submit(message("g", payload=b"2"))
    assert isinstance(reply.error, ContentConflict)
    assert await rig.state("g") is State.PREPARED


async def test_submit_without_branches_submits_the_prepared_ones(rig: Rig) -> None:
    await rig.prepare(message("g"))
    await rig.submit(Message("g", ()))
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN]


async def test_submit_repeated_runs_nothing_again(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g"))
    assert (await rig.submit(message("g"))).error is None
    rig.destination.release(IN)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN]


async def test_requests_for_a_finished_message_are_conflicts_that_name_its_state(rig: Rig) -> None:
    await rig.submit(message("g"))
    await rig.until_state("g", State.SUCCEEDED)
    for reply in (await rig.prepare(message("g")), await rig.submit(message("g"))):
        assert isinstance(reply.error, StateConflict)
        assert reply.state is State.SUCCEEDED


async def test_abort_fails_a_prepared_message_for_good(rig: Rig) -> None:
    await rig.prepare(message("g"))
    assert (await rig.abort("g")).error is None
    assert await rig.state("g") is State.FAILED
    assert (await rig.abort("g")).error is None
    assert rig.destination.calls == []


async def test_abort_of_an_unknown_gid_is_refused_and_leaves_nothing_behind(rig: Rig) -> None:
    assert isinstance((await rig.abort("nobody")).error, UnknownMessage)
    assert await rig.state("nobody") is None
    assert rig.coordinator.gauges().active == 0


async def test_a_contrary_decision_is_refused_and_an_incident(rig: Rig) -> None:
    await rig.prepare(message("g"))
    await rig.abort("g")
    assert isinstance((await rig.submit(message("g"))).error, ContraryDecision)
    assert [gid for gid, _ in rig.watcher.incidents] == ["g"]
    await rig.settled()
    view = await rig.coordinator.query("g")
    assert view is not None
    assert [attempt.kind for attempt in view.log] == ["incident"]


async def test_abort_of_a_submitted_message_is_refused_and_it_is_delivered(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g"))
    assert isinstance((await rig.abort("g")).error, ContraryDecision)
    rig.destination.release(IN)
    await rig.until_state("g", State.SUCCEEDED)


async def test_requests_that_race_for_one_gid_are_taken_one_after_the_other(rig: Rig) -> None:
    rig.store.open.clear()
    replies = [rig.prepare_soon(message("g")), rig.submit_soon(message("g")), rig.submit_soon(message("g"))]
    rig.store.open.set()
    assert [(await reply).error for reply in replies] == [None, None, None]
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN]


async def test_a_submit_states_options_that_are_kept(rig: Rig) -> None:
    await rig.prepare(message("g", request_timeout_ms=1_000))
    await rig.submit(message("g", delay_ms=60_000))
    view = await rig.coordinator.query("g")
    assert view is not None
    assert (view.message.options.delay_ms, view.message.options.request_timeout_ms) == (60_000, 1_000)


async def test_wait_result_is_answered_when_every_branch_has_succeeded(rig: Rig) -> None:
    reply = await rig.submit(message("g", IN, "http://bank-c/in", wait_result=True))
    assert (reply.error, reply.state) == (None, State.SUCCEEDED)
    assert await rig.state("g") is State.SUCCEEDED


@pytest.mark.parametrize(
    ("status", "result"), [(409, BranchResult.FAILED), (425, BranchResult.ONGOING), (500, BranchResult.ERROR)]
)
async def test_wait_result_tells_what_the_first_round_came_to(rig: Rig, status: int, result: BranchResult) -> None:
    rig.destination.script[IN].append(Answer(status))
    reply = await rig.submit(message("g", wait_result=True))
    assert isinstance(reply.error, NotYetDelivered)
    assert (reply.result, reply.state) == (result, State.SUBMITTED)


async def test_wait_result_of_a_delayed_message_is_answered_at_once(rig: Rig) -> None:
    reply = await rig.submit(message("g", wait_result=True, delay_ms=60_000))
    assert isinstance(reply.error, NotYetDelivered)


async def test_a_failed_flush_is_reported_to_the_requester_and_nothing_is_pretended(rig: Rig) -> None:
    rig.store.failures.append(StoreFull())
    reply = await rig.prepare(message("g"))
    assert isinstance(reply.error, StoreFull)
    assert await rig.state("g") is None
    assert (await rig.prepare(message("g"))).error is None


async def test_no_request_is_taken_while_draining(rig: Rig) -> None:
    await rig.coordinator.drain(1_000)
    assert isinstance((await rig.prepare(message("g"))).error, ShuttingDown)
