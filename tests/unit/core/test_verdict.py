"""The meaning of an answer.

Guessing is forbidden, for verdicts (correctness 10, decision 10) as for branch results.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.verdict import (
    GRPC_OF_STATUS,
    STATUS_OF_VERDICT,
    BranchResult,
    Verdict,
    interpret_branch,
    interpret_check_back,
    status_of_grpc,
    status_of_json_rpc,
    word_that_decided,
)

_STATUSES = st.sampled_from([0, 200, 201, 204, 302, 404, 409, 425, 500, 502])
_BODIES = st.sampled_from([b"", b"SUCCESS", b"FAILURE", b"ONGOING", b"ONGOING FAILURE", b"<html>"])


@pytest.mark.parametrize("explicit", [True, False], ids=["ours", "foreign"])
@pytest.mark.parametrize("verdict", Verdict)
def test_a_header_that_agrees_with_its_status_is_the_verdict(verdict: Verdict, explicit: bool) -> None:
    status = STATUS_OF_VERDICT[verdict]

    assert interpret_check_back(status, f" {verdict.value.upper()} ", b"FAILURE", explicit=explicit) is verdict


@pytest.mark.parametrize("explicit", [True, False], ids=["ours", "foreign"])
@pytest.mark.parametrize(
    ("status", "header"),
    [(409, "committed"), (200, "rolled_back"), (502, "committed"), (200, "yes"), (409, ""), (200, "unknown")],
)
def test_a_header_that_contradicts_its_status_is_no_verdict(status: int, header: str, explicit: bool) -> None:
    assert interpret_check_back(status, header, b"", explicit=explicit) is Verdict.UNKNOWN


@given(_STATUSES, _BODIES)
def test_our_messages_need_the_header_whatever_else_the_answer_says(status: int, body: bytes) -> None:
    assert interpret_check_back(status, None, body, explicit=True) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, b"", Verdict.COMMITTED),
        (200, b'{"dtm_result":"SUCCESS"}', Verdict.COMMITTED),
        (200, b'{"dtm_result":"FAILURE"}', Verdict.ROLLED_BACK),
        (200, b'{"dtm_result":"ONGOING"}', Verdict.IN_PROGRESS),
        (200, b"FAILURE ONGOING", Verdict.IN_PROGRESS),
        (409, b"", Verdict.ROLLED_BACK),
        (409, b"ONGOING", Verdict.ROLLED_BACK),
        (425, b"FAILURE", Verdict.IN_PROGRESS),
        (500, b"FAILURE", Verdict.UNKNOWN),
        (404, b"", Verdict.UNKNOWN),
        (204, b"", Verdict.UNKNOWN),
        (0, b"", Verdict.UNKNOWN),
    ],
)
def test_a_foreign_answer_is_read_status_first(status: int, body: bytes, verdict: Verdict) -> None:
    assert interpret_check_back(status, None, body, explicit=False) is verdict


@given(_STATUSES.filter(lambda status: status not in (200, 409)), _BODIES)
def test_no_other_status_decides(status: int, body: bytes) -> None:
    decided = (Verdict.COMMITTED, Verdict.ROLLED_BACK)

    assert interpret_check_back(status, None, body, explicit=False) not in decided


@pytest.mark.parametrize(
    ("status", "body", "result"),
    [
        (200, b"", BranchResult.SUCCEEDED),
        (200, b"anything", BranchResult.SUCCEEDED),
        (200, b'{"dtm_result":"FAILURE"}', BranchResult.FAILED),
        (200, b"ONGOING", BranchResult.ONGOING),
        (200, b"FAILURE ONGOING", BranchResult.ONGOING),
        (425, b"", BranchResult.ONGOING),
        (409, b"", BranchResult.FAILED),
        (201, b"", BranchResult.ERROR),
        (500, b"FAILURE", BranchResult.ERROR),
        (0, b"", BranchResult.ERROR),
    ],
)
def test_a_branch_answer_is_read_status_first(status: int, body: bytes, result: BranchResult) -> None:
    assert interpret_branch(status, body) is result


@given(_STATUSES.filter(lambda status: status != 200), _BODIES)
def test_only_200_is_success(status: int, body: bytes) -> None:
    assert interpret_branch(status, body) is not BranchResult.SUCCEEDED


_ANY_BODIES = st.binary(max_size=40) | _BODIES
_ANY_STATUSES = st.integers(0, 599) | _STATUSES
_HEADERS = st.none() | st.text(max_size=12) | st.sampled_from([verdict.value for verdict in Verdict])


@given(_ANY_STATUSES, _HEADERS, _ANY_BODIES, _ANY_BODIES, st.booleans())
def test_strictly_a_check_backs_body_decides_nothing(
    status: int, header: str | None, one: bytes, other: bytes, explicit: bool
) -> None:
    verdicts = {interpret_check_back(status, header, body, explicit=explicit, strict=True) for body in (one, other)}

    assert len(verdicts) == 1


@given(_ANY_STATUSES, _HEADERS, _ANY_BODIES, st.booleans())
def test_strictly_only_200_commits_and_only_409_rolls_back(
    status: int, header: str | None, body: bytes, explicit: bool
) -> None:
    verdict = interpret_check_back(status, header, body, explicit=explicit, strict=True)

    assert verdict is not Verdict.COMMITTED or status == 200
    assert verdict is not Verdict.ROLLED_BACK or status == 409
    assert verdict is not Verdict.IN_PROGRESS or status == 425


@given(_ANY_STATUSES, _ANY_BODIES)
def test_strictly_a_branch_is_what_its_status_says(status: int, body: bytes) -> None:
    said = {200: BranchResult.SUCCEEDED, 409: BranchResult.FAILED, 425: BranchResult.ONGOING}

    assert interpret_branch(status, body, strict=True) is said.get(status, BranchResult.ERROR)


@pytest.mark.parametrize("word", [b"FAILURE", b"ONGOING"])
def test_strictly_a_200_is_a_200(word: bytes) -> None:
    assert interpret_check_back(200, None, word, explicit=False, strict=True) is Verdict.COMMITTED
    assert interpret_branch(200, word, strict=True) is BranchResult.SUCCEEDED


@given(_ANY_STATUSES, _HEADERS, _ANY_BODIES, st.booleans())
def test_strictness_never_turns_an_unknown_into_a_verdict_or_an_error_into_success(
    status: int, header: str | None, body: bytes, explicit: bool
) -> None:
    lenient = interpret_check_back(status, header, body, explicit=explicit)
    strict = interpret_check_back(status, header, body, explicit=explicit, strict=True)

    assert strict is lenient or (status == 200 and header is None and strict is Verdict.COMMITTED)
    assert interpret_branch(status, body, strict=True) is interpret_branch(status, body) or status == 200


@pytest.mark.parametrize(
    ("code", "details", "status"),
    [
        (0, "", 200),
        (1, "cancelled", 0),
        (2, "boom", 500),
        (3, "", 400),
        (4, "deadline", 0),
        (5, "", 404),
        (9, "ONGOING", 425),
        (10, "FAILURE", 409),
        (10, "ONGOING", 425),
        (10, "ONGOING, FAILURE", 409),
        (12, "no such method", 501),
        (13, "FAILURE", 500),
        (14, "FAILURE", 0),
        (99, "", 500),
    ],
)
def test_a_grpc_status_means_what_an_http_status_means(code: int, details: str, status: int) -> None:
    assert status_of_grpc(code, details) == status


def test_grpc_codes_say_every_verdict_back_and_forth() -> None:
    for status in STATUS_OF_VERDICT.values():
        assert status_of_grpc(GRPC_OF_STATUS[status], "") == status


@pytest.mark.parametrize(("code", "status"), [(-32901, 409), (-32902, 425), (-32603, 500), (0, 500)])
def test_a_json_rpc_code_means_what_an_http_status_means(code: int, status: int) -> None:
    assert status_of_json_rpc(code) == status


@given(_STATUSES, _BODIES)
def test_a_word_is_named_exactly_where_it_decided(status: int, body: bytes) -> None:
    result = interpret_branch(status, body)
    by_status = interpret_branch(status, body, strict=True)
    assert bool(word_that_decided(status, result)) == (result is not by_status)

    verdict = interpret_check_back(status, None, body, explicit=False)
    assert bool(word_that_decided(status, verdict.value)) == (
        verdict is not interpret_check_back(status, None, body, explicit=False, strict=True)
    )
