"""Status codes, bodies and texts as dtm's clients know them.

They were recorded from dtm 1.19 (dtm-wire §1.3, §1.4).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from twophase.core import errors
from twophase.core.lifecycle import State
from twophase.core.verdict import BranchResult
from twophase.server.codecs.encode import Answer, Route, failure, harmless, response, success_body

DTM_REFUSALS = [
    (Route.PREPARE, State.SUBMITTED, "current status 'submitted', cannot prepare. FAILURE"),
    (Route.PREPARE, State.SUCCEEDED, "current status 'succeed', cannot prepare. FAILURE"),
    (Route.PREPARE, State.FAILED, "current status 'failed', cannot prepare. FAILURE"),
    (Route.SUBMIT, State.SUCCEEDED, "current status 'succeed', cannot sumbmit. FAILURE"),
    (Route.SUBMIT, State.FAILED, "current status 'failed', cannot sumbmit. FAILURE"),
    (Route.ABORT, State.SUBMITTED, "trans type: 'msg' current status 'submitted', cannot abort. FAILURE"),
    (Route.ABORT, State.SUCCEEDED, "trans type: 'msg' current status 'succeed', cannot abort. FAILURE"),
]


def read(answer: Answer) -> dict[str, Any]:
    decoded = json.loads(answer.body)
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize(("route", "state", "text"), DTM_REFUSALS)
@pytest.mark.parametrize("error", [errors.StateConflict(), errors.ContraryDecision()], ids=["conflict", "contrary"])
def test_a_refused_transition_is_409_in_dtms_words(
    route: Route, state: State, text: str, error: errors.TwophaseError
) -> None:
    answer = failure(error, route=route, state=state)
    said = read(answer)
    assert (answer.status, said["dtm_result"], said["message"]) == (409, "FAILURE", text)
    assert said["code"] == error.code


@pytest.mark.parametrize(
    ("state", "spelled"),
    [
        (State.PREPARED, "prepared"),
        (State.SUBMITTED, "submitted"),
        (State.SUCCEEDED, "succeed"),
        (State.FAILED, "failed"),
    ],
)
def test_a_refusal_names_the_state_in_dtms_spelling(state: State, spelled: str) -> None:
    assert read(failure(errors.StateConflict(), route=Route.SUBMIT, state=state))["state"] == spelled


def test_abort_of_an_unknown_gid_is_dtms_500() -> None:
    answer = failure(errors.UnknownMessage(gid="tv-none"), route=Route.ABORT)
    assert answer.status == 500
    said = read(answer)
    assert said["message"] == "no TransGlobal with gid: tv-none found"
    assert "dtm_result" not in said


def test_an_unknown_topic_is_dtms_500() -> None:
    answer = failure(errors.TopicNotFound())
    assert (answer.status, read(answer)["message"]) == (500, "topic not found")


def test_other_content_under_a_gid_is_409() -> None:
    answer = failure(errors.ContentConflict(), route=Route.PREPARE, state=State.PREPARED)
    said = read(answer)
    assert (answer.status, said["dtm_result"], said["code"]) == (409, "FAILURE", "TP-2002")
    assert said["message"].endswith(" FAILURE")


def test_a_forgotten_gid_is_neither_ok_nor_failed() -> None:
    answer = failure(errors.ForgottenMessage(gid="g"))
    assert answer.status == 410
    assert b"FAILURE" not in answer.body


@pytest.mark.parametrize(
    ("result", "status"), [(BranchResult.ONGOING, 409), (BranchResult.FAILED, 409), (BranchResult.ERROR, 500)]
)
def test_wait_result_tells_what_the_branch_did(result: BranchResult, status: int) -> None:
    answer = failure(errors.NotYetDelivered(), route=Route.SUBMIT, state=State.SUBMITTED, result=result)
    assert answer.status == status
    assert (b"FAILURE" in answer.body) is (status == 409)
    said = read(answer)
    assert said["state"] == "submitted"
    assert said["message"].startswith("wait result not return success: ")


@pytest.mark.parametrize(
    "error", [errors.Overloaded(), errors.ShuttingDown(), errors.StoreError(), errors.StoreFull(), errors.StoreFenced()]
)
def test_what_may_be_tried_again_is_503_with_retry_after(error: errors.TwophaseError) -> None:
    answer = failure(error)
    assert answer.status == 503
    assert b"retry-after: 1\r\n" in response(answer, b"date", closes=False)
    assert "dtm_result" not in read(answer)


@pytest.mark.parametrize("error", [errors.InvalidRequest(), errors.LimitExceeded(), errors.UnsupportedType()])
def test_bad_input_is_400_with_code_and_remedy(error: errors.TwophaseError) -> None:
    answer = failure(error)
    said = read(answer)
    assert answer.status == 400
    assert (said["code"], said["remedy"]) == (error.code, error.remedy)


def test_a_200_never_carries_the_words_of_failure() -> None:
    assert b"FAILURE" not in success_body(1)
    body = json.dumps({"url": "http://b/FAILURE/ONGOING"}).encode()
    escaped = harmless(body)
    assert b"FAILURE" not in escaped
    assert b"ONGOING" not in escaped
    assert json.loads(escaped) == json.loads(body)


def test_a_response_is_whole() -> None:
    raw = response(Answer(200, b"{}"), b"Sat, 21 Nov 2026 10:00:00 GMT", closes=True)
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert set(lines[1:]) == {
        b"date: Sat, 21 Nov 2026 10:00:00 GMT",
        b"content-type: application/json; charset=utf-8",
        b"x-content-type-options: nosniff",
        b"cache-control: no-store",
        b"connection: close",
        b"content-length: 2",
    }
    assert body == b"{}"
