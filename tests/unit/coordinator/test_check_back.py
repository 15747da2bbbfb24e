"""The check-back: only the producer's answer decides, never time."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, Harness, message
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


async def test_a_prepared_message_is_asked_about_when_it_is_due_and_not_before(harness: Harness) -> None:
    reply = await harness.prepare(message("g"))
    harness.clock.advance(34_000)
    await harness.settled()
    assert harness.destination.calls == []
    harness.clock.advance(1_064)
    await until(lambda: bool(harness.destination.calls))
    call = harness.destination.calls[0]
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
async def test_a_message_that_was_begun_elsewhere_is_asked_about_with_its_birth(
    harness: Harness, birth_ms: int
) -> None:
    """The message's barrier row may have been cleaned already.

    Asked with a later time of birth, the producer would answer "rolled back".
    """
    reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    harness.coordinator.prepare(message("g"), reply.set_result, birth_ms)
    assert (await reply).error is None
    harness.clock.advance(DUE_MS)
    await until(lambda: bool(harness.destination.calls))
    assert dict(harness.destination.calls[0].query)["prepared_at"] == str(birth_ms)
    await harness.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize(("own_ms", "question_ms"), [(0, 3_000), (300, 3_000), (20_000, 20_000)])
async def test_a_short_branch_timeout_does_not_cut_the_wait_for_the_lock_of_a_held_row(
    harness: Harness, own_ms: int, question_ms: int
) -> None:
    await harness.prepare(message("g", IN, request_timeout_ms=own_ms))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)
    asked, delivered = harness.destination.calls
    assert (asked.url, asked.timeout_ms) == (CHECK, question_ms)
    assert (delivered.url, delivered.timeout_ms) == (IN, own_ms or 3_000)


async def test_its_own_timeout_to_fail_is_kept(harness: Harness) -> None:
    await harness.prepare(message("g", timeout_to_fail_ms=120_000))
    harness.clock.advance(119_000)
    await harness.settled()
    assert harness.destination.calls == []


async def test_committed_delivers(harness: Harness) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    harness.destination.script[CHECK].append(says("committed", 200))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.decided_by == "check-back"
    assert harness.destination.urls() == [CHECK, IN]


async def test_rolled_back_fails_and_calls_nothing(harness: Harness) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    harness.destination.script[CHECK].append(says("rolled_back", 409))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.FAILED)
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.decided_by == "check-back"
    assert harness.destination.urls() == [CHECK]


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
async def test_without_a_verdict_it_is_asked_again_and_never_decided(harness: Harness, answer: Answer) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    harness.destination.script[CHECK].extend([answer] * 8)
    harness.clock.advance(DUE_MS)
    for _ in range(8):
        await harness.settled()
        assert await harness.state("g") is State.PREPARED
        harness.clock.advance(60_064)
    harness.destination.script[CHECK].append(says("committed", 200))
    for _ in range(3):
        await harness.settled()
        harness.clock.advance(60_064)
    harness.destination.script[CHECK].append(says("committed", 200))
    harness.clock.advance(60_064)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_foreign_producers_plain_200_commits(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(Answer(200, b"ok"))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_word_that_rolled_a_foreign_message_back_is_named_in_its_history(harness: Harness) -> None:
    harness.destination.script[CHECK].append(Answer(200, b'{"customer":"FAILURE"}'))
    await harness.prepare(message("g", strict=True))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.FAILED)
    view = await harness.coordinator.query("g")
    assert view is not None
    assert "its 200 answer contains the word FAILURE: dtm's rule" in view.reason


async def test_a_word_in_an_explicit_answer_decides_nothing(harness: Harness) -> None:
    harness.destination.script[CHECK].append(says("committed", 200, b'{"customer":"FAILURE"}'))
    await harness.prepare(message("g", explicit_verdict=True, strict=True))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)


async def test_without_an_address_it_is_parked_and_a_submit_still_decides(harness: Harness) -> None:
    await harness.prepare(message("g", check_url=""))
    harness.clock.advance(DUE_MS)
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert (view.state, view.parked) == (State.PREPARED, True)
    harness.clock.advance(10_000_000)
    await harness.settled()
    assert await harness.state("g") is State.PREPARED
    assert (await harness.submit(message("g", check_url=""))).error is None
    await harness.until_state("g", State.SUCCEEDED)


async def test_branches_added_inside_the_transaction_come_with_the_answer(harness: Harness) -> None:
    await harness.prepare(message("g", IN, explicit_verdict=True, open=True))
    added = base64.b64encode(encode_branches((Branch("http://bank-c/in", b"3"),))).decode()
    harness.destination.script[CHECK].append(says("committed", 200, json.dumps({"branches": added}).encode()))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [CHECK, IN, "http://bank-c/in"]
    assert harness.destination.calls[0].answer_bytes_max == OPEN_ANSWER_BYTES_MAX.value
    assert harness.destination.calls[1].answer_bytes_max == 0, "what any answer may be"
    view = await harness.coordinator.query("g")
    assert view is not None
    assert len(view.message.branches) == 2


@pytest.mark.parametrize(
    ("result", "called"),
    [({"branches": "BODY"}, True), ({}, False), ("SUCCESS", None), ({"branches": 1}, None)],
)
async def test_branches_added_inside_the_transaction_come_with_the_result_of_a_json_rpc_answer(
    harness: Harness, result: Any, called: bool | None
) -> None:
    """Send an answer whose result may not be twophase's.

    Such an answer has no value in `called`: it decides nothing.
    """
    body = base64.b64encode(encode_branches((Branch("http://bank-c/in", b"7"),))).decode()
    said = json.dumps({"jsonrpc": "2.0", "id": "1", "result": result}).replace("BODY", body)
    harness.destination.script[CHECK].append(says("committed", 200, said.encode()))
    await harness.prepare(message("g", explicit_verdict=True, open=True))
    harness.clock.advance(DUE_MS)
    if called is None:
        await harness.settled()
        assert await harness.state("g") is State.PREPARED
    else:
        await harness.until_state("g", State.SUCCEEDED)
        assert harness.destination.urls() == [CHECK, IN, *(["http://bank-c/in"] if called else [])]


@pytest.mark.parametrize(
    "branches",
    ["%%%", "Á==", ""],
    ids=["garbled", "no ASCII", "of a route that takes an empty body for none"],
)
async def test_an_open_message_whose_answer_says_no_branches_stays_undecided(harness: Harness, branches: str) -> None:
    await harness.prepare(message("g", IN, explicit_verdict=True, open=True))
    harness.destination.script[CHECK].append(says("committed", 200, json.dumps({"branches": branches}).encode()))
    harness.clock.advance(DUE_MS)
    await harness.settled()
    assert await harness.state("g") is State.PREPARED


@pytest.mark.parametrize(
    "body",
    [b'{"x":' + b"[" * 100_000, b'{"jsonrpc":"2.0","result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
    ids=["beside", "in the result"],
)
async def test_a_message_whose_answer_is_nested_too_deeply_is_asked_about_again(harness: Harness, body: bytes) -> None:
    await harness.prepare(message("g", IN, explicit_verdict=True, open=True))
    harness.destination.script[CHECK] += [says("committed", 200, body), says("committed", 200, b'{"branches":null}')]
    harness.clock.advance(DUE_MS)
    await until(lambda: len(harness.destination.calls) == 1)
    await harness.settled()
    assert await harness.state("g") is State.PREPARED
    harness.clock.advance(60 * DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_submit_that_overtakes_the_question_decides_and_the_late_answer_changes_nothing(
    harness: Harness,
) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(says("committed", 200))
    harness.clock.advance(DUE_MS)
    await until(lambda: bool(harness.destination.calls))
    assert (await harness.submit(message("g"))).error is None
    await harness.until_state("g", State.SUCCEEDED)
    harness.destination.release(CHECK)
    await harness.settled()
    assert harness.watcher.incidents == []
    assert harness.destination.urls() == [CHECK, IN]


async def test_a_late_rolled_back_about_a_submitted_message_is_an_incident(harness: Harness) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(says("rolled_back", 409))
    harness.clock.advance(DUE_MS)
    await until(lambda: bool(harness.destination.calls))
    await harness.submit(message("g"))
    harness.destination.release(CHECK)
    await until(lambda: bool(harness.watcher.incidents))
    await harness.until_state("g", State.SUCCEEDED)


@pytest.mark.parametrize(
    ("decide", "state", "contrary"),
    [
        ("submit", State.SUCCEEDED, says("rolled_back", 409)),
        ("abort", State.FAILED, says("committed", 200)),
    ],
)
async def test_a_contrary_verdict_about_a_message_that_is_final_and_has_left_memory_is_recorded(
    harness: Harness, decide: str, state: State, contrary: Answer
) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(contrary)
    harness.clock.advance(DUE_MS)
    await until(lambda: bool(harness.destination.calls))
    reply = await (harness.submit(message("g")) if decide == "submit" else harness.abort("g"))
    assert reply.error is None
    await harness.until_state("g", state)
    await until(lambda: not harness.coordinator.gauges().active)
    harness.destination.release(CHECK)
    await until(lambda: bool(harness.watcher.incidents))
    await harness.settled()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert view.state is state
    assert [one.kind for one in view.log] == [AttemptKind.INCIDENT]
    assert harness.watcher.incidents == [("g", view.log[0].error)]


async def test_after_a_restart_prepared_messages_are_asked_about_when_due(harness: Harness) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    await harness.restart()
    harness.destination.script[CHECK].append(says("committed", 200))
    harness.clock.advance(DUE_MS)
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_lost_compare_and_set_takes_the_stored_row_and_applies_the_table_again(harness: Harness) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    await super(type(harness.store), harness.store).flush(Batch([Decide("g", 1, 0, "submit")], []))
    harness.destination.script[CHECK].append(says("rolled_back", 409))
    harness.clock.advance(DUE_MS)
    await until(lambda: bool(harness.watcher.incidents))
    await harness.until_state("g", State.SUCCEEDED)


async def test_a_message_finished_elsewhere_is_left_alone(harness: Harness) -> None:
    await harness.prepare(message("g", explicit_verdict=True))
    await super(type(harness.store), harness.store).flush(
        Batch([Finish("g", 1, State.FAILED, "elsewhere", "abort")], [])
    )
    harness.destination.script[CHECK].append(says("committed", 200))
    harness.clock.advance(DUE_MS)
    await until(lambda: bool(harness.watcher.incidents))
    assert await harness.state("g") is State.FAILED
    assert harness.destination.urls() == [CHECK]
    assert harness.coordinator.gauges().active == 0
