"""Check-backs as HTTP, without a framework."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from twophase.barrier.asking import CheckBackAnswer, CheckBackQuestion, check_back
from twophase.barrier.branch import BranchCall, read_call
from twophase.barrier.http_answer import (
    CheckBackPolicy,
    HttpReply,
    answer_check_back,
    answer_of,
    asheltered,
    parse_query,
    sheltered,
)
from twophase.barrier.signing import http_call
from twophase.core.errors import ConfigurationError, InvalidRequest
from twophase.core.verdict import Verdict, interpret_check_back

QUERY = {"gid": "g", "trans_type": "msg", "op": "msg", "branch_id": "00", "prepared_at": "17", "barrier": "mine"}
CALL = {"gid": "g", "trans_type": "msg", "op": "action", "branch_id": "01"}


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_our_coordinator_and_dtm_s_understand_every_verdict(verdict: Verdict, explicit: bool) -> None:
    status, headers, body = answer_of(CheckBackAnswer(verdict, evidence="because"))
    header = headers["x-twophase-verdict"] if explicit else None
    assert interpret_check_back(status, header, body, explicit=explicit) is verdict


@pytest.mark.parametrize("span", [0, 0.0004, -1, timedelta(0)])
def test_a_wait_of_no_millisecond_is_refused_since_postgresql_takes_it_for_no_bound(span: float | timedelta) -> None:
    with pytest.raises(ConfigurationError, match=r"lock_timeout: .* is too short"):
        CheckBackPolicy.of("barrier", span, require_identity=True)
    with pytest.raises(ConfigurationError, match=r"lock_timeout: .* is too short"):
        check_back(object(), "g", lock_timeout=span)


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


async def test_a_route_that_fails_is_unknown_for_every_producer() -> None:
    def broken() -> HttpReply:
        raise LookupError("secret")

    async def abroken() -> HttpReply:
        return broken()

    for reply in (sheltered(broken), await asheltered(abroken)):
        header = reply.headers["x-twophase-verdict"]
        for explicit in (True, False):
            assert interpret_check_back(reply.status, header, reply.body, explicit=explicit) is Verdict.UNKNOWN
        assert "LookupError" in json.loads(reply.body)["message"]
        assert b"secret" not in reply.body
