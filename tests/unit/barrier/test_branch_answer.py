"""The answers to branch calls as HTTP, without a framework."""

from __future__ import annotations

import json
import logging

import pytest

from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.barrier.branch_answer import Framework, aanswer_branch, answer_branch
from twophase.barrier.http_answer import HttpReply
from twophase.core.errors import InvalidRequest, TransactionLost
from twophase.core.verdict import NOT_DONE, VERDICT_HEADER, interpret_branch


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


async def test_an_unexpected_failure_is_500_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def effect() -> None:
        raise LookupError("secret")

    async def aeffect() -> None:
        effect()

    replies = [answer_branch(effect), await aanswer_branch(aeffect)]
    told = b'{"message":"the branch call failed: LookupError; the service\'s log says where"}'
    assert [(reply.status, reply.body) for reply in replies] == [(500, told)] * 2
    assert caplog.text.count("LookupError: secret") == 2


class _Refusing(Framework):
    def __init__(self, status: int) -> None:
        self._status = status

    def answer_in(self, error: Exception) -> HttpReply | None:
        return HttpReply(self._status, {}, b"why") if isinstance(error, LookupError) else None


@pytest.mark.parametrize(
    ("raised", "status"), [(200, 500), (302, 500), (399, 500), (400, 400), (425, 425), (599, 599), (600, 500), (0, 500)]
)
def test_an_answer_that_is_raised_counts_only_if_it_refuses(raised: int, status: int) -> None:
    def effect() -> None:
        raise LookupError

    assert answer_branch(effect, _Refusing(raised)).status == status


def test_an_answer_that_is_raised_for_a_busy_database_keeps_its_status() -> None:
    def effect() -> None:
        raise LookupError from DatabaseError("40P01")

    assert answer_branch(effect, _Refusing(404)).status == 404


class DatabaseError(Exception):
    """An error like psycopg's and asyncpg's."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("the text with secret in it")
        self.sqlstate = sqlstate


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03"])
def test_a_lock_or_a_conflict_is_asked_for_again_and_says_which(
    sqlstate: str, caplog: pytest.LogCaptureFixture
) -> None:
    def effect() -> None:
        raise DatabaseError(sqlstate)

    reply = answer_branch(effect)
    why = f"SQLSTATE {sqlstate}, DatabaseError"
    assert (reply.status, json.loads(reply.body)["message"]) == (425, f"the database is busy: {why}")
    assert why in caplog.text
    assert "secret" not in caplog.text


def test_a_statement_that_takes_too_long_is_an_error_that_says_its_code() -> None:
    def effect() -> None:
        raise DatabaseError("57014")

    reply = answer_branch(effect)
    assert (reply.status, b"SQLSTATE 57014, DatabaseError" in reply.body) == (500, True)


@pytest.mark.parametrize("error", [BranchRefused(), BranchOngoing(), InvalidRequest("no"), LookupError()])
def test_an_answer_that_says_no_shows_it_should_its_status_be_changed(error: Exception) -> None:
    def effect() -> None:
        raise error

    assert answer_branch(effect).headers[VERDICT_HEADER] == NOT_DONE


def test_a_branch_that_took_effect_is_success_for_the_coordinator() -> None:
    status, headers, body = answer_branch(lambda: None)
    assert interpret_branch(status, body).value == "succeeded"
    assert VERDICT_HEADER not in headers
