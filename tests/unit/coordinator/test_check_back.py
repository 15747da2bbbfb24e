"""The check-back: only the producer's answer decides, never time."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.unit.coordinator.rig import CHECK, IN, Rig, message
from twophase.coordinator.state.active_message import Reply
from twophase.core.lifecycle import State
from twophase.core.limits import OPEN_ANSWER_BYTES_MAX
from twophase.core.message import Branch, encode_branches
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, Decide, Finish
from twophase.stores.rows import AttemptKind

DUE_MS = 35_064


def says(verdict: str, status: int, body: bytes = b"{}") -> Answer:
    return Answer(status, body, verdict)


async def test_a_prepared_message_is_asked_about_when_it_is_due_and_not_before(rig: Rig) -> None:
    reply = await rig.prepare(message("g"))
    rig.clock.advance(34_000)
    await rig.settled()
    assert rig.destination.calls == []
    rig.clock.advance(1_064)
    await rig.until(lambda: bool(rig.destination.calls))
    call = rig.destination.calls[0]
    assert call.url == CHECK
    assert call.payload == b""
    assert dict(call.query) == {
        "branch_id": "00",
        "gid": "g",
        "op": "msg",
        "prepared_at": str(reply.prepared_at_ms),
        "trans_type": "msg",
    }


@pytest.mark.parametrize("birth_ms", [7, 0])
async def test_a_message_that_was_begun_elsewhere_is_asked_about_with_its_birth(rig: Rig, birth_ms: int) -> None:
    """The message's barrier row may have been cleaned already.

    Asked with a later time of birth, the producer would answer "rolled back".
    """
    reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    rig.coordinator.prepare(message("g"), reply.set_result, birth_ms)
    assert (await reply).error is None
    rig.clock.advance(DUE_MS)
    await rig.until(lambda: bool(rig.destination.calls))
    assert dict(rig.destination.calls[0].query)["prepared_at"] == str(birth_ms)
    await rig.until_state("g", State.SUCCEEDED)


async def test_its_own_timeout_to_fail_is_kept(rig: Rig) -> None:
    await rig.prepare(message("g", timeout_to_fail_ms=120_000))
    rig.clock.advance(119_000)
    await rig.settled()
    assert rig.destination.calls == []


async def test_committed_delivers(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    rig.destination.script[CHECK].append(says("committed", 200))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.SUCCEEDED)
    view = await rig.coordinator.query("g")
    assert view is not None
    assert view.decided_by == "check-back"
    assert rig.destination.urls() == [CHECK, IN]


async def test_rolled_back_fails_and_calls_nothing(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    rig.destination.script[CHECK].append(says("rolled_back", 409))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.FAILED)
    view = await rig.coordinator.query("g")
    assert view is not None
    assert view.decided_by == "check-back"
    assert rig.destination.urls() == [CHECK]


@pytest.mark.parametrize(
    "answer",
    [
        says("in_progress", 425),
        says("unknown", 500),
        Answer(0, error="timeout"),
        Answer(200, b"<html>a proxy's page</html>"),
        Answer(404),
    ],
    ids=["in progress", "unknown", "no answer", "a page", "not found"],
)
async def test_without_a_verdict_it_is_asked_again_and_never_decided(rig: Rig, answer: Answer) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    rig.destination.script[CHECK].extend([answer] * 8)
    rig.clock.advance(DUE_MS)
    for _ in range(8):
        await rig.settled()
        assert await rig.state("g") is State.PREPARED
        rig.clock.advance(60_064)
    rig.destination.script[CHECK].append(says("committed", 200))
    for _ in range(3):
        await rig.settled()
        rig.clock.advance(60_064)
    rig.destination.script[CHECK].append(says("committed", 200))
    rig.clock.advance(60_064)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_foreign_producers_plain_200_commits(rig: Rig) -> None:
    await rig.prepare(message("g"))
    rig.destination.script[CHECK].append(Answer(200, b"ok"))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_word_that_rolled_a_foreign_message_back_is_named_in_its_history(rig: Rig) -> None:
    rig.destination.script[CHECK].append(Answer(200, b'{"customer":"FAILURE"}'))
    await rig.prepare(message("g", strict=True))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.FAILED)
    view = await rig.coordinator.query("g")
    assert view is not None
    assert "its 200 answer contains the word FAILURE: dtm's rule" in view.reason


async def test_a_word_in_an_explicit_answer_decides_nothing(rig: Rig) -> None:
    rig.destination.script[CHECK].append(says("committed", 200, b'{"customer":"FAILURE"}'))
    await rig.prepare(message("g", explicit_verdict=True, strict=True))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.SUCCEEDED)


async def test_without_an_address_it_is_parked_and_a_submit_still_decides(rig: Rig) -> None:
    await rig.prepare(message("g", check_url=""))
    rig.clock.advance(DUE_MS)
    await rig.settled()
    view = await rig.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked) == (State.PREPARED, True)
    rig.clock.advance(10_000_000)
    await rig.settled()
    assert await rig.state("g") is State.PREPARED
    assert (await rig.submit(message("g", check_url=""))).error is None
    await rig.until_state("g", State.SUCCEEDED)


async def test_branches_added_inside_the_transaction_come_with_the_answer(rig: Rig) -> None:
    await rig.prepare(message("g", IN, explicit_verdict=True, open=True))
    added = base64.b64encode(encode_branches((Branch("http://bank-c/in", b"3"),))).decode()
    rig.destination.script[CHECK].append(says("committed", 200, json.dumps({"branches": added}).encode()))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [CHECK, IN, "http://bank-c/in"]
    assert rig.destination.calls[0].answer_bytes_max == OPEN_ANSWER_BYTES_MAX.value
    assert rig.destination.calls[1].answer_bytes_max == 0, "what any answer may be"
    view = await rig.coordinator.query("g")
    assert view is not None
    assert len(view.message.branches) == 2


@pytest.mark.parametrize(
    ("result", "called"),
    [({"branches": "BODY"}, True), ({}, False), ("SUCCESS", None), ({"branches": 1}, None)],
)
async def test_branches_added_inside_the_transaction_come_with_the_result_of_a_json_rpc_answer(
    rig: Rig, result: Any, called: bool | None
) -> None:
    """Send an answer whose result may not be twophase's.

    Such an answer has no value in `called`: it decides nothing.
    """
    body = base64.b64encode(encode_branches((Branch("http://bank-c/in", b"7"),))).decode()
    said = json.dumps({"jsonrpc": "2.0", "id": "1", "result": result}).replace("BODY", body)
    rig.destination.script[CHECK].append(says("committed", 200, said.encode()))
    await rig.prepare(message("g", explicit_verdict=True, open=True))
    rig.clock.advance(DUE_MS)
    if called is None:
        await rig.settled()
        assert await rig.state("g") is State.PREPARED
    else:
        await rig.until_state("g", State.SUCCEEDED)
        assert rig.destination.urls() == [CHECK, IN, *(["http://bank-c/in"] if called else [])]


@pytest.mark.parametrize("branches", ["%%%", ""], ids=["garbled", "of a route that takes an empty body for none"])
async def test_an_open_message_whose_answer_says_no_branches_stays_undecided(rig: Rig, branches: str) -> None:
    await rig.prepare(message("g", IN, explicit_verdict=True, open=True))
    rig.destination.script[CHECK].append(says("committed", 200, json.dumps({"branches": branches}).encode()))
    rig.clock.advance(DUE_MS)
    await rig.settled()
    assert await rig.state("g") is State.PREPARED


async def test_a_submit_that_overtakes_the_question_decides_and_the_late_answer_changes_nothing(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    rig.destination.hold(CHECK)
    rig.destination.script[CHECK].append(says("committed", 200))
    rig.clock.advance(DUE_MS)
    await rig.until(lambda: bool(rig.destination.calls))
    assert (await rig.submit(message("g"))).error is None
    await rig.until_state("g", State.SUCCEEDED)
    rig.destination.release(CHECK)
    await rig.settled()
    assert rig.watcher.incidents == []
    assert rig.destination.urls() == [CHECK, IN]


async def test_a_late_rolled_back_about_a_submitted_message_is_an_incident(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    rig.destination.hold(CHECK)
    rig.destination.script[CHECK].append(says("rolled_back", 409))
    rig.clock.advance(DUE_MS)
    await rig.until(lambda: bool(rig.destination.calls))
    await rig.submit(message("g"))
    rig.destination.release(CHECK)
    await rig.until(lambda: bool(rig.watcher.incidents))
    await rig.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize(
    ("decide", "state", "contrary"),
    [
        ("submit", State.SUCCEEDED, says("rolled_back", 409)),
        ("abort", State.FAILED, says("committed", 200)),
    ],
)
async def test_a_contrary_verdict_about_a_message_that_is_final_and_has_left_memory_is_recorded(
    rig: Rig, decide: str, state: State, contrary: Answer
) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    rig.destination.hold(CHECK)
    rig.destination.script[CHECK].append(contrary)
    rig.clock.advance(DUE_MS)
    await rig.until(lambda: bool(rig.destination.calls))
    reply = await (rig.submit(message("g")) if decide == "submit" else rig.abort("g"))
    assert reply.error is None
    await rig.until_state("g", state)
    await rig.until(lambda: not rig.coordinator.gauges().active)
    rig.destination.release(CHECK)
    await rig.until(lambda: bool(rig.watcher.incidents))
    await rig.settled()
    view = await rig.coordinator.query("g")
    assert view is not None
    assert view.state is state
    assert [one.kind for one in view.log] == [AttemptKind.INCIDENT]
    assert rig.watcher.incidents == [("g", view.log[0].error)]


async def test_after_a_restart_prepared_messages_are_asked_about_when_due(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    await rig.restart()
    rig.destination.script[CHECK].append(says("committed", 200))
    rig.clock.advance(DUE_MS)
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_lost_compare_and_set_takes_the_stored_row_and_applies_the_table_again(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    await super(type(rig.store), rig.store).flush(Batch([Decide("g", 1, 0, "submit")], []))
    rig.destination.script[CHECK].append(says("rolled_back", 409))
    rig.clock.advance(DUE_MS)
    await rig.until(lambda: bool(rig.watcher.incidents))
    await rig.until_state("g", State.SUCCEEDED)


async def test_a_message_finished_elsewhere_is_left_alone(rig: Rig) -> None:
    await rig.prepare(message("g", explicit_verdict=True))
    await super(type(rig.store), rig.store).flush(Batch([Finish("g", 1, State.FAILED, "elsewhere", "abort")], []))
    rig.destination.script[CHECK].append(says("committed", 200))
    rig.clock.advance(DUE_MS)
    await rig.until(lambda: bool(rig.watcher.incidents))
    assert await rig.state("g") is State.FAILED
    assert rig.destination.urls() == [CHECK]
    assert rig.coordinator.gauges().active == 0
