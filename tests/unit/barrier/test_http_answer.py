"""Check-backs and branches as HTTP, without a framework."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from twophase.barrier.asking import CheckBackAnswer, CheckBackQuestion
from twophase.barrier.branch import BranchCall, BranchOngoing, BranchRefused, read_call
from twophase.barrier.http_answer import CheckBackPolicy, answer_branch, answer_check_back, answer_of, parse_query
from twophase.barrier.signing import http_call
from twophase.core.errors import InvalidRequest, TransactionLost
from twophase.core.verdict import Verdict, interpret_branch, interpret_check_back

QUERY = {"gid": "g", "trans_type": "msg", "op": "msg", "branch_id": "00", "prepared_at": "17", "barrier": "mine"}
CALL = {"gid": "g", "trans_type": "msg", "op": "action", "branch_id": "01"}


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_our_coordinator_and_dtm_s_understand_every_verdict(verdict: Verdict, explicit: bool) -> None:
    status, headers, body = answer_of(CheckBackAnswer(verdict, evidence="because"))
    header = headers["x-twophase-verdict"] if explicit else None
    assert interpret_check_back(status, header, body, explicit=explicit) is verdict


def test_branches_go_only_with_a_commit() -> None:
    assert "branches" in json.loads(answer_of(CheckBackAnswer(Verdict.COMMITTED, b"\x90")).body)
    assert "branches" not in json.loads(answer_of(CheckBackAnswer(Verdict.ROLLED_BACK, b"\x90")).body)


def test_a_whole_question_is_understood() -> None:
    assert parse_query(QUERY) == CheckBackQuestion("g", 17, "mine")


def test_a_foreign_question_is_understood() -> None:
    assert parse_query({"gid": "g"}) == CheckBackQuestion("g")


@pytest.mark.parametrize(
    "wrong",
    [
        {"gid": ""},
        {"gid": "a\x7f"},
        {"trans_type": "tcc"},
        {"op": "action"},
        {"branch_id": "01"},
        {"prepared_at": "1.5"},
        {"prepared_at": "-1"},
        {"prepared_at": "²"},
        {"prepared_at": "9" * 16},
    ],
)
def test_an_impossible_question_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        parse_query(QUERY | wrong)


@pytest.mark.parametrize("read", [parse_query, read_call])
def test_a_call_without_a_query_string_learns_whom_the_route_is_for(
    read: Callable[[dict[str, str]], object],
) -> None:
    with pytest.raises(InvalidRequest, match="for the coordinator: its query string needs gid, "):
        read({})


class _MultiDict(dict[str, list[str]]):
    """A framework's parameters; `get` returns the first value of a name."""

    def getlist(self, name: str) -> list[str]:
        return super().get(name, [])

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)[0]


class _Getall(_MultiDict):
    """Parameters with the method's name in aiohttp and WebOb."""

    getlist = None  # type: ignore[assignment]

    def getall(self, name: str) -> list[str]:
        return [value for key, values in self.items() if key == name for value in values]


@pytest.mark.parametrize("kind", [dict, _MultiDict, _Getall])
@pytest.mark.parametrize(("read", "usual"), [(parse_query, QUERY), (read_call, CALL)])
def test_a_parameter_of_the_coordinator_that_comes_twice_is_refused_whatever_holds_it(
    read: Callable[[Any], object], usual: dict[str, str], kind: Callable[..., Any]
) -> None:
    once_each = {name: [value] for name, value in usual.items()}
    assert read(kind(once_each)) == read(usual)
    for name, value in usual.items():
        for other in (value, "7"):
            with pytest.raises(InvalidRequest, match=f"{name} is twice"):
                read(kind({**once_each, name: [other, value]}))


def test_an_address_without_its_database_is_answered_with_a_code() -> None:
    policy = CheckBackPolicy("barrier", 100, require_identity=True)
    status, headers, body = answer_check_back(
        object(), {"gid": "g"}, policy, http_call("GET", "/", "", {}, bytes, peer="")
    )
    assert (status, headers["x-twophase-verdict"].lower()) == (500, "unknown")
    assert json.loads(body)["message"].startswith("TP-6002: ")


def test_a_call_is_understood() -> None:
    assert read_call(CALL) == BranchCall("g", "01", "action")


@pytest.mark.parametrize(
    "wrong",
    [
        {"gid": ""},
        {"gid": "x" * 129},
        {"trans_type": "saga"},
        {"op": "compensate"},
        {"branch_id": ""},
        {"branch_id": "0" * 129},
        {"branch_id": "0 1"},
        {"branch_id": "ä"},
        {"branch_id": "\x00"},
    ],
)
def test_an_impossible_call_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        read_call(CALL | wrong)


@pytest.mark.parametrize(
    ("error", "status"), [(BranchRefused(), 409), (BranchOngoing(), 425), (InvalidRequest("gid is empty."), 400)]
)
def test_a_branch_s_failure_has_its_status(error: Exception, status: int) -> None:
    def effect() -> None:
        raise error

    assert answer_branch(effect).status == status


@pytest.mark.parametrize(
    ("error", "body"),
    [
        (BranchRefused("no stock"), b'{"dtm_result":"FAILURE","message":"no stock"}'),
        (BranchOngoing("in an hour"), b'{"dtm_result":"ONGOING","message":"in an hour"}'),
        (TransactionLost("gone", remedy="Ask."), b'{"code":"TP-5009","message":"gone","remedy":"Ask."}'),
        # dtm's coordinator looks for its words anywhere in a body.
        (BranchRefused("ONGOING"), b'{"dtm_result":"FAILURE","message":"ONGOIN\\u0047"}'),
        (
            TransactionLost("FAILURE", remedy="ONGOING"),
            b'{"code":"TP-5009","message":"FAILUR\\u0045","remedy":"ONGOIN\\u0047"}',
        ),
    ],
)
def test_a_branch_s_failure_tells_its_reason(error: Exception, body: bytes) -> None:
    def effect() -> None:
        raise error

    assert answer_branch(effect).body == body


def test_an_error_of_ours_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def effect() -> None:
        try:
            raise LookupError("of the database library")
        except LookupError as error:
            raise TransactionLost("gone", remedy="Ask.") from error

    with caplog.at_level(logging.INFO, "twophase"):
        answer_branch(effect)
    assert caplog.text.splitlines()[0].endswith("a branch call fails: TP-5009: gone Fate: undecided. Ask.")
    assert len(caplog.text.splitlines()) == 1


def test_a_reason_is_cut_at_a_bound() -> None:
    def effect() -> None:
        raise BranchRefused("x" * 10_000)

    assert len(answer_branch(effect).body) < 600


def test_an_unexpected_failure_is_the_framework_s() -> None:
    def effect() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        answer_branch(effect)


def test_a_branch_that_took_effect_is_success_for_the_coordinator() -> None:
    status, _, body = answer_branch(lambda: None)
    assert interpret_branch(status, body).value == "succeeded"
