"""Many messages in one request: each has the outcome that it would have alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.client.harness import Time
from twophase.client import many
from twophase.client.draft import Draft, Progress
from twophase.client.flow import FlowContext
from twophase.client.transport.exchange import Pause, RequestBounds, Send
from twophase.client.transport.wire import Disconnected, HttpAnswer, NotConnected, Operation, TransportFailure
from twophase.core.errors import (
    ConfigurationError,
    ContentConflict,
    ContraryDecision,
    CoordinatorUnreachable,
    Fate,
    InvalidRequest,
    MessageUsedTwice,
    Overloaded,
    StateConflict,
    StoreUnavailable,
)
from twophase.core.many import MESSAGES_MAX
from twophase.core.options import Options

CHECK = "http://bank-a/check"
Answers = Callable[[list[str]], HttpAnswer]


def results(**errors: dict[str, str]) -> Answers:
    """Answer with these results, and done for every other gid."""

    def answer(gids: list[str]) -> HttpAnswer:
        return HttpAnswer(200, msgspec.json.encode({"results": [errors.get(gid, {}) for gid in gids]}))

    return answer


def just(answer: HttpAnswer) -> Answers:
    return lambda _: answer


class Script:
    """A coordinator that answers by script; the last answer is repeated."""

    def __init__(self, *answers: Answers | TransportFailure, takes_ms: int = 1, **options: Any) -> None:
        self.answers = list(answers or [results()])
        self.takes_ms = takes_ms
        self.time = Time()
        self.options = Options(**options)
        self.sent: list[tuple[Operation, list[str]]] = []
        self.pauses: list[int] = []
        self.drafts: dict[str, Draft] = {}

    def context(self, gid: str, payload: Any = None) -> FlowContext:
        draft = self.drafts[gid] = Draft(gid, self.options, gid_is_ours=True)
        draft.add("http://b/in", payload)
        return FlowContext(draft, RequestBounds(), self.time.runtime())

    def prepare(self, *contexts: FlowContext) -> many.Errors:
        return self._play(many.prepare(contexts, CHECK, explicit_verdict=True))

    def submit(self, *contexts: FlowContext) -> many.Errors:
        return self._play(many.submit(contexts))

    def _play(self, flow: many.ManyFlow) -> many.Errors:
        try:
            command = next(flow)
            while True:
                if isinstance(command, Pause):
                    self.pauses.append(command.pause_ms)
                    self.time.now_ms += command.pause_ms
                    command = flow.send(None)
                    continue
                assert isinstance(command, Send)
                gids = [one["gid"] for one in msgspec.json.decode(command.body)["messages"]]
                self.sent.append((command.operation, gids))
                self.time.now_ms += min(self.takes_ms, command.timeout_ms)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                command = flow.throw(answer) if isinstance(answer, TransportFailure) else flow.send(answer(gids))
        except StopIteration as stop:
            errors: many.Errors = stop.value
            return errors


def test_messages_travel_in_one_request_and_end_as_alone() -> None:
    script = Script()
    contexts = [script.context(gid) for gid in "abc"]
    assert script.prepare(*contexts) == {"a": None, "b": None, "c": None}
    assert {draft.progress for draft in script.drafts.values()} == {Progress.PREPARED}
    assert script.submit(*contexts) == {"a": None, "b": None, "c": None}
    assert {draft.progress for draft in script.drafts.values()} == {Progress.SUBMITTED}
    assert script.sent == [(Operation.PREPARE_MANY, ["a", "b", "c"]), (Operation.SUBMIT_MANY, ["a", "b", "c"])]


def test_a_refused_message_changes_nothing_for_the_others() -> None:
    script = Script(results(b={"code": "TP-2002", "state": "prepared", "message": "other branches"}))
    errors = script.prepare(*(script.context(gid) for gid in "abc"))
    assert errors["a"] is None
    assert isinstance(errors["b"], ContentConflict)
    assert (errors["b"].gid, errors["b"].fate) == ("b", Fate.NOT_STARTED)
    assert [draft.progress for draft in script.drafts.values()] == [Progress.PREPARED, Progress.NEW, Progress.PREPARED]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"code": "TP-2003", "state": "failed"}, ContraryDecision),
        ({"code": "TP-2001", "state": "failed"}, ContraryDecision),
        ({"code": "TP-2001", "state": "prepared"}, StateConflict),
    ],
)
def test_a_submit_reads_the_state_as_alone(result: dict[str, str], error: type[Exception]) -> None:
    script = Script(results(a={"message": "no", **result}))
    assert isinstance(script.submit(script.context("a"))["a"], error)
    assert script.drafts["a"].progress is Progress.NEW


def test_only_what_must_come_again_is_sent_again() -> None:
    busy = {"code": "TP-3001", "message": "too many"}
    locked = {"code": "TP-4001", "message": "locked"}
    script = Script(results(b=busy, c=locked), results(c=locked), results())
    assert script.submit(*(script.context(gid) for gid in "abc")) == {"a": None, "b": None, "c": None}
    assert [gids for _, gids in script.sent] == [["a", "b", "c"], ["b", "c"], ["c"]]
    assert script.pauses == [50, 100]


def test_a_busy_coordinator_is_asked_a_bounded_number_of_times() -> None:
    script = Script(results(b={"code": "TP-4009", "message": "away"}))
    errors = script.submit(*(script.context(gid) for gid in "ab"))
    assert errors["a"] is None
    assert isinstance(errors["b"], StoreUnavailable)
    assert len(script.sent) == RequestBounds().attempts


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (TransportFailure("timed out"), CoordinatorUnreachable),
        (Disconnected("refused"), CoordinatorUnreachable),
        (just(HttpAnswer(503, b'{"code":"TP-3001","message":"full"}', "1")), Overloaded),
        (just(HttpAnswer(502, b"<html>")), CoordinatorUnreachable),
        (just(HttpAnswer(400, b'{"code":"TP-1000","message":"no"}')), InvalidRequest),
        (just(HttpAnswer(200, b"<html>")), CoordinatorUnreachable),
        (just(HttpAnswer(200, b'{"results":[]}')), CoordinatorUnreachable),
    ],
)
def test_a_request_without_outcomes_is_each_messages_error(
    answer: Answers | TransportFailure, error: type[Exception]
) -> None:
    script = Script(answer)
    errors = script.submit(*(script.context(gid) for gid in "ab"))
    assert [type(one) for one in errors.values()] == [error, error]
    assert [one.gid for one in errors.values() if one is not None] == ["a", "b"]
    assert script.time.now_ms <= RequestBounds().total_ms


@pytest.mark.parametrize(
    ("failure", "fate"), [(NotConnected("refused"), Fate.UNCHANGED), (Disconnected("cut"), Fate.UNDECIDED)]
)
def test_messages_that_were_never_sent_are_unchanged(failure: TransportFailure, fate: Fate) -> None:
    script = Script(failure)
    errors = script.submit(*(script.context(gid) for gid in "ab"))
    assert [one.fate for one in errors.values() if one is not None] == [fate, fate]


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    script = Script(TransportFailure("cut"), results())
    assert script.submit(script.context("a")) == {"a": None}
    assert len(script.sent) == 2


def test_nothing_more_is_sent_to_a_coordinator_that_does_not_answer() -> None:
    script = Script(TransportFailure("timed out"), takes_ms=10_000)
    errors = script.submit(*(script.context(f"g{number}") for number in range(MESSAGES_MAX + 1)))
    assert {type(error) for error in errors.values()} == {CoordinatorUnreachable}
    unsent = errors[f"g{MESSAGES_MAX}"]
    assert unsent is not None
    assert "was not sent" in str(unsent)
    assert unsent.fate is Fate.UNCHANGED
    assert all(len(gids) == MESSAGES_MAX for _, gids in script.sent)
    assert script.time.now_ms <= RequestBounds().total_ms


def test_a_coordinator_without_the_request_is_named() -> None:
    script = Script(just(HttpAnswer(404, b"404 page not found")))
    with pytest.raises(ConfigurationError, match="no prepare-many") as raised:
        script.prepare(script.context("a"))
    assert "Send each message alone" in raised.value.remedy


def test_requests_are_bounded_in_messages_and_in_bytes() -> None:
    script = Script()
    script.submit(*(script.context(f"g{number}") for number in range(2 * MESSAGES_MAX + 1)))
    assert [len(gids) for _, gids in script.sent] == [MESSAGES_MAX, MESSAGES_MAX, 1]

    script = Script()
    script.submit(*(script.context(gid, "x" * 900_000) for gid in "abcde"))
    assert [gids for _, gids in script.sent] == [["a", "b"], ["c", "d"], ["e"]]


def test_what_cannot_be_sent_is_refused_alone() -> None:
    script = Script()
    used, unbranched = script.context("used"), script.context("unbranched")
    used.draft.progress = Progress.ROLLED_BACK
    unbranched.draft.branches.clear()
    errors = script.submit(used, unbranched, script.context("a"))
    assert [type(errors[gid]) for gid in ("used", "unbranched", "a")] == [MessageUsedTwice, InvalidRequest, type(None)]
    assert script.sent == [(Operation.SUBMIT_MANY, ["a"])]


def test_a_submit_that_waits_for_branches_goes_alone() -> None:
    script = Script(wait_result=True)
    errors = script.submit(script.context("a"))
    assert isinstance(errors["a"], InvalidRequest)
    assert script.sent == []


def test_nothing_is_sent_for_nothing() -> None:
    script = Script()
    assert script.submit() == {}
    assert script.sent == []
