"""Prepare, submit and abort by hand.

They may not harm a message that has a transaction of its own.
"""

from __future__ import annotations

import pytest

from tests.unit.client.harness import Harness, context
from twophase.client import flow, manual
from twophase.client.draft import Progress
from twophase.client.transport.wire import HttpAnswer, Operation, TransportFailure
from twophase.core.errors import (
    ContraryDecision,
    CoordinatorUnreachable,
    InvalidRequest,
    MessageUsedTwice,
    NotYetDelivered,
    Undecided,
    UnknownMessage,
)
from twophase.core.verdict import Verdict

CUT = TransportFailure("cut")


def test_plain_message_is_only_submitted() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(manual.submit(under_way))
    assert harness.performed == ["submit"]
    assert under_way.draft.progress is Progress.SUBMITTED
    assert "query_prepared" not in harness.bodies["submit"]


def test_branch_that_is_added_after_the_submit_is_refused() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(manual.submit(under_way))
    with pytest.raises(InvalidRequest, match=r"comes too late: it is submitted.*a Message of its own"):
        under_way.draft.add("http://b/late")


def test_prepare_then_submit_by_hand() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(manual.prepare(under_way, "http://a/check", explicit_verdict=True))
    assert under_way.draft.progress is Progress.PREPARED
    harness.play(manual.submit(under_way))
    assert harness.performed == ["prepare", "submit"]
    assert harness.bodies["submit"]["query_prepared"] == "http://a/check"


def test_check_route_of_another_library_needs_no_explicit_verdict() -> None:
    harness = Harness()
    harness.play(manual.prepare(context(harness), "http://a/check", explicit_verdict=False))
    assert "explicit_verdict" not in harness.bodies["prepare"]


def test_prepare_then_abort_by_hand() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(manual.prepare(under_way, "http://a/check", explicit_verdict=True))
    harness.play(manual.abort(under_way))
    assert harness.performed == ["prepare", "abort"]
    assert under_way.draft.progress is Progress.ROLLED_BACK


def test_requests_by_hand_may_be_repeated() -> None:
    harness = Harness()
    under_way = context(harness)
    for _ in range(2):
        harness.play(manual.prepare(under_way, "http://a/check", explicit_verdict=True))
    for _ in range(2):
        harness.play(manual.submit(under_way))
    assert harness.performed == ["prepare", "prepare", "submit", "submit"]


def test_submit_by_hand_that_gets_no_answer_is_raised_and_can_be_repeated() -> None:
    harness = Harness(answers={Operation.SUBMIT: [CUT]})
    under_way = context(harness)
    with pytest.raises(CoordinatorUnreachable):
        harness.play(manual.submit(under_way))
    harness.answers[Operation.SUBMIT] = [HttpAnswer(200, b'{"dtm_result":"SUCCESS"}')]
    harness.play(manual.submit(under_way))
    assert under_way.draft.progress is Progress.SUBMITTED


def test_submit_by_hand_with_wait_result_says_not_yet_delivered() -> None:
    pending = b'{"dtm_result":"FAILURE","message":"x","code":"TP-2006","state":"submitted"}'
    harness = Harness(answers={Operation.SUBMIT: [HttpAnswer(409, pending)]})
    under_way = context(harness)
    with pytest.raises(NotYetDelivered):
        harness.play(manual.submit(under_way))
    assert under_way.draft.progress is Progress.SUBMITTED


def test_submit_of_nothing_is_refused() -> None:
    harness = Harness()
    with pytest.raises(InvalidRequest, match="no branch"):
        harness.play(manual.submit(context(harness, branches=0)))


def test_abort_of_an_unknown_message_is_raised() -> None:
    unknown = HttpAnswer(500, b'{"message":"no TransGlobal with gid: g found","code":"TP-2004"}')
    harness = Harness(answers={Operation.ABORT: [unknown]})
    with pytest.raises(UnknownMessage):
        harness.play(manual.abort(context(harness)))


def test_abort_of_a_submitted_message_is_a_contrary_decision() -> None:
    conflict = HttpAnswer(409, b'{"dtm_result":"FAILURE","message":"x","code":"TP-2001","state":"submitted"}')
    harness = Harness(answers={Operation.ABORT: [conflict]})
    with pytest.raises(ContraryDecision):
        harness.play(manual.abort(context(harness)))


@pytest.mark.parametrize("request_by_hand", [manual.submit, manual.abort])
def test_nothing_may_be_decided_by_hand_inside_the_transaction(request_by_hand: object) -> None:
    harness = Harness(verdict=Verdict.ROLLED_BACK)
    under_way = context(harness)

    def business() -> BaseException | None:
        with pytest.raises(MessageUsedTwice):
            harness.play(request_by_hand(under_way))  # type: ignore[operator]
        return None

    harness.business = business
    harness.play(flow.transaction(under_way, "http://a/check"))
    assert "abort" not in harness.performed
    assert harness.performed.count("submit") == 1


@pytest.mark.parametrize("verdict", [Verdict.ROLLED_BACK, Verdict.UNKNOWN])
def test_submit_by_hand_after_a_transaction_that_did_not_commit_is_refused(verdict: Verdict) -> None:
    harness = Harness(business=KeyboardInterrupt(), verdict=verdict)
    under_way = context(harness)
    harness.play(flow.transaction(under_way, "http://a/check"))
    with pytest.raises(MessageUsedTwice):
        harness.play(manual.submit(under_way))
    assert "submit" not in harness.performed


def test_abort_by_hand_while_the_commit_is_unclear_is_refused() -> None:
    harness = Harness(failures={"Commit": OSError()}, verdict=Verdict.UNKNOWN)
    under_way = context(harness)
    with pytest.raises(Undecided):
        harness.play(flow.transaction(under_way, "http://a/check"))
    with pytest.raises(MessageUsedTwice):
        harness.play(manual.abort(under_way))
    assert "abort" not in harness.performed


def test_lost_submit_may_be_repeated_by_hand_after_the_commit() -> None:
    harness = Harness(answers={Operation.SUBMIT: [CUT]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, "http://a/check"))
    harness.answers[Operation.SUBMIT] = [HttpAnswer(200, b'{"dtm_result":"SUCCESS"}')]
    harness.play(manual.submit(under_way))
    assert under_way.draft.progress is Progress.SUBMITTED


def test_committed_message_is_not_aborted_by_hand() -> None:
    harness = Harness(answers={Operation.SUBMIT: [CUT]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, "http://a/check"))
    with pytest.raises(MessageUsedTwice):
        harness.play(manual.abort(under_way))
    assert "abort" not in harness.performed


def test_message_prepared_by_hand_gets_no_second_transaction() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(manual.prepare(under_way, "http://a/check", explicit_verdict=True))
    with pytest.raises(MessageUsedTwice):
        harness.play(flow.transaction(under_way, "http://a/check"))
