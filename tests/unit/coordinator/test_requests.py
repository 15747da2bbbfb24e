"""The replies to prepare, submit and abort, and their times."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, Harness, message
from twophase.coordinator.operator import Act
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
from twophase.core.redirect import Redirection
from twophase.core.verdict import BranchResult
from twophase.destinations.base import Answer


async def test_prepare_is_acknowledged_only_when_it_is_durable(harness: Harness) -> None:
    harness.store.open.clear()
    reply = harness.prepare_soon(message("g"))
    other = harness.submit_soon(message("plain", check_url=""))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 2)
    assert not reply.done()
    assert not other.done()
    harness.store.open.set()
    assert (await reply).error is None
    assert await harness.state("g") is State.PREPARED


async def test_no_branch_is_called_before_the_decision_is_durable(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.store.open.clear()
    reply = harness.submit_soon(message("g"))
    await until(lambda: harness.coordinator.gauges().waiting_for_store == 1)
    assert harness.destination.calls == []
    harness.store.open.set()
    assert (await reply).error is None
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_a_branch_call_carries_dtms_query_headers_and_the_payload_as_it_came(harness: Harness) -> None:
    await harness.submit(message("g", payload=b'{"amount": 1}', headers=(("x-tenant", "7"),)))
    await harness.until_state("g", State.SUCCEEDED)
    call = harness.destination.calls[0]
    assert call.query == (("branch_id", "01"), ("gid", "g"), ("op", "action"), ("trans_type", "msg"))
    assert call.payload == b'{"amount": 1}'
    assert call.headers[-1] == ("x-tenant", "7")


STORED: Final = (("x-twophase-oldest", "9999999999999"), ("Metadata-Flavor", "Google"), ("x-tenant", "7"))
"""Headers of a message that an earlier version accepted."""


async def test_a_branch_call_sends_no_reserved_header_of_a_stored_message(harness: Harness) -> None:
    await harness.submit(message("g", headers=STORED, trace=(("x-forwarded-for", "10.0.0.1"), ("traceparent", "00-1"))))
    await harness.until_state("g", State.SUCCEEDED)
    headers = harness.destination.calls[0].headers
    assert STORED[0] not in headers
    own = {("x-tenant", "7"), ("traceparent", "00-1")}
    assert {header for header in headers if header[0] != "x-twophase-oldest"} == own


async def test_a_check_back_sends_no_reserved_header_of_a_stored_message(harness: Harness) -> None:
    await harness.prepare(message("g", check_url=CHECK, headers=STORED))
    harness.clock.advance(35_064)
    await until(lambda: bool(harness.destination.calls))
    assert harness.destination.calls[0].headers == (("x-tenant", "7"),)


async def test_a_stored_branch_at_a_reserved_address_is_not_called_and_can_be_redirected(harness: Harness) -> None:
    """An earlier version or a barrier row may have brought the address.

    Two branches with one id would be one to the receiver's barrier.
    """
    await harness.submit(message("g", "http://bank-b/in?branch_id=7", "http://bank-b/out?barrier=7f"))
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert "'branch_id'" in view.log[0].error
    assert harness.destination.urls() == []

    for branch_id in ("01", "02"):
        wanted = Redirection(f"http://bank-b/{branch_id}", branch_id)
        reply, _ = await harness.coordinator.operator.redirect("g", wanted, Act(), lambda *_: None)
        assert reply.error is None
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == ["http://bank-b/01", "http://bank-b/02"]


async def test_a_stored_check_address_with_a_reserved_name_is_not_asked(harness: Harness) -> None:
    await harness.prepare(message("g", check_url=f"{CHECK}?gid=other"))
    await harness.prepare(message("good", check_url=f"{CHECK}?barrier=7f"))
    harness.clock.advance(35_064)
    await harness.until_state("good", State.SUCCEEDED)
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.state, "'gid'" in view.log[0].error) == (State.PREPARED, True)
    assert harness.destination.urls() == [f"{CHECK}?barrier=7f", IN]


async def test_prepare_repeated_is_the_same_and_keeps_its_first_time(harness: Harness) -> None:
    first = await harness.prepare(message("g"))
    again = await harness.prepare(message("g"))
    assert again.error is None
    assert again.prepared_at_ms == first.prepared_at_ms > 0


async def test_prepare_with_other_branches_under_the_same_gid_is_a_conflict(harness: Harness) -> None:
    await harness.prepare(message("g", IN))
    reply = await harness.prepare(message("g", "http://bank-c/in"))
    assert isinstance(reply.error, ContentConflict)


@pytest.mark.parametrize(
    "asked", ["http://pod-1/check?barrier=two", "http://pod-1/check", "", "http://other/check?barrier=one"]
)
async def test_a_second_prepare_that_would_ask_elsewhere_is_refused_because_one_answer_decides(
    harness: Harness, asked: str
) -> None:
    """The first prepare's barrier table would be asked about the second's transaction.

    It would answer "rolled back" for a transaction that is committed in the other database.
    """
    assert (await harness.prepare(message("g", check_url="http://pod-1/check?tenant=7&barrier=one"))).error is None

    other = await harness.prepare(message("g", check_url=asked))
    same = await harness.prepare(message("g", check_url="http://pod-1/check?barrier=one#here"))

    assert (type(other.error), other.state) == (ContentConflict, State.PREPARED)
    assert same.error is None


async def test_a_second_prepare_of_a_client_that_names_no_database_needs_the_same_check_address(
    harness: Harness,
) -> None:
    """The first client to prepare a gid must not choose who answers for another.

    Otherwise its check address would be asked about another client's transaction.
    """
    assert (await harness.prepare(message("g", check_url="http://attacker/evil"))).error is None
    victim = await harness.prepare(message("g", check_url="http://bank-a/check"))
    assert (type(victim.error), victim.state) == (ContentConflict, State.PREPARED)
    assert victim.error is not None
    assert "another check address" in victim.error.message


async def test_a_second_prepare_of_an_open_message_must_fix_the_same_branches(harness: Harness) -> None:
    await harness.prepare(message("g", IN, open=True))
    more = await harness.prepare(message("g", IN, "http://bank-c/in", open=True))
    none = await harness.prepare(Message("g", (), options=Options(open=True)))
    assert isinstance(more.error, ContentConflict)
    assert isinstance(none.error, ContentConflict)


async def test_a_submit_of_an_open_message_may_bring_more_branches(harness: Harness) -> None:
    await harness.prepare(message("g", IN, open=True))
    await harness.submit(message("g", IN, "http://bank-c/in", open=True))
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, "http://bank-c/in"]


async def test_more_branches_behind_the_submit_of_an_open_message_are_refused_because_none_would_be_called(
    harness: Harness,
) -> None:
    harness.destination.hold(IN)
    await harness.prepare(message("g", IN, open=True))
    assert (await harness.submit(message("g", IN, open=True))).error is None
    reply = await harness.submit(message("g", IN, "http://bank-c/in", open=True))
    assert isinstance(reply.error, ContentConflict)
    assert (await harness.submit(message("g", IN, open=True))).error is None


async def test_submit_with_other_payloads_is_a_conflict_and_delivers_nothing(harness: Harness) -> None:
    await harness.prepare(message("g", payload=b"1"))
    reply = await harness.submit(message("g", payload=b"2"))
    assert isinstance(reply.error, ContentConflict)
    assert await harness.state("g") is State.PREPARED


@pytest.mark.parametrize(
    "other", [message("g", payload=b"2"), message("g", "http://bank-c/in", payload=b"1")], ids=["payload", "address"]
)
async def test_submit_of_other_content_is_a_conflict_after_success_too_or_it_would_be_lost(
    harness: Harness, other: Message
) -> None:
    await harness.submit(message("g", payload=b"1"))
    await harness.until_state("g", State.SUCCEEDED)

    reply = await harness.submit(other)
    repeated = await harness.submit(message("g", payload=b"1"))
    without_branches = await harness.submit(Message("g", ()))

    assert (type(reply.error), reply.state) == (ContentConflict, State.SUCCEEDED)
    assert (type(repeated.error), repeated.state) == (StateConflict, State.SUCCEEDED)
    assert (type(without_branches.error), without_branches.state) == (StateConflict, State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_submit_without_branches_submits_the_prepared_ones(harness: Harness) -> None:
    await harness.prepare(message("g"))
    await harness.submit(Message("g", ()))
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_submit_repeated_runs_nothing_again(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    assert (await harness.submit(message("g"))).error is None
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_requests_for_a_finished_message_are_conflicts_that_name_its_state(harness: Harness) -> None:
    await harness.submit(message("g"))
    await harness.until_state("g", State.SUCCEEDED)
    for reply in (await harness.prepare(message("g")), await harness.submit(message("g"))):
        assert isinstance(reply.error, StateConflict)
        assert reply.state is State.SUCCEEDED


async def test_abort_fails_a_prepared_message_for_good(harness: Harness) -> None:
    await harness.prepare(message("g"))
    assert (await harness.abort("g")).error is None
    assert await harness.state("g") is State.FAILED
    assert (await harness.abort("g")).error is None
    assert harness.destination.calls == []


async def test_abort_of_an_unknown_gid_is_refused_and_leaves_nothing_behind(harness: Harness) -> None:
    assert isinstance((await harness.abort("nobody")).error, UnknownMessage)
    assert await harness.state("nobody") is None
    assert harness.coordinator.gauges().active == 0


async def test_a_contrary_decision_is_refused_and_an_incident(harness: Harness) -> None:
    await harness.prepare(message("g"))
    await harness.abort("g")
    assert isinstance((await harness.submit(message("g"))).error, ContraryDecision)
    assert [gid for gid, _ in harness.watcher.incidents] == ["g"]
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert [attempt.kind for attempt in view.log] == ["incident"]


async def test_abort_of_a_submitted_message_is_refused_and_it_is_delivered(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    assert isinstance((await harness.abort("g")).error, ContraryDecision)
    harness.destination.release(IN)
    await harness.until_state("g", State.SUCCEEDED)


async def test_requests_that_race_for_one_gid_are_taken_one_after_the_other(harness: Harness) -> None:
    harness.store.open.clear()
    replies = [harness.prepare_soon(message("g")), harness.submit_soon(message("g")), harness.submit_soon(message("g"))]
    harness.store.open.set()
    assert [(await reply).error for reply in replies] == [None, None, None]
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN]


async def test_a_submit_states_options_that_are_kept(harness: Harness) -> None:
    await harness.prepare(message("g", request_timeout_ms=1_000))
    await harness.submit(message("g", delay_ms=60_000))
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.message.options.delay_ms, view.message.options.request_timeout_ms) == (60_000, 1_000)


async def test_wait_result_is_answered_when_every_branch_has_succeeded(harness: Harness) -> None:
    reply = await harness.submit(message("g", IN, "http://bank-c/in", wait_result=True))
    assert (reply.error, reply.state) == (None, State.SUCCEEDED)
    assert await harness.state("g") is State.SUCCEEDED


@pytest.mark.parametrize(
    ("status", "result"), [(409, BranchResult.FAILED), (425, BranchResult.ONGOING), (500, BranchResult.ERROR)]
)
async def test_wait_result_tells_what_the_first_round_came_to(
    harness: Harness, status: int, result: BranchResult
) -> None:
    harness.destination.script[IN].append(Answer(status))
    reply = await harness.submit(message("g", wait_result=True))
    assert isinstance(reply.error, NotYetDelivered)
    assert (reply.result, reply.state) == (result, State.SUBMITTED)


async def test_wait_result_of_a_delayed_message_is_answered_at_once(harness: Harness) -> None:
    reply = await harness.submit(message("g", wait_result=True, delay_ms=60_000))
    assert isinstance(reply.error, NotYetDelivered)


async def test_a_failed_flush_is_reported_to_the_requester_and_nothing_is_pretended(harness: Harness) -> None:
    harness.store.failures.append(StoreFull())
    reply = await harness.prepare(message("g"))
    assert isinstance(reply.error, StoreFull)
    assert await harness.state("g") is None
    assert (await harness.prepare(message("g"))).error is None


async def test_no_request_is_taken_while_draining(harness: Harness) -> None:
    await harness.coordinator.drain(1_000)
    assert isinstance((await harness.prepare(message("g"))).error, ShuttingDown)
