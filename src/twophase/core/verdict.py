"""The meaning of an answer to a check-back or to a branch call.

This is pure interpretation, and the only one.

The verdict decides the fate of a message, so guessing is forbidden (correctness rule 10, decision 10):

* A message of our own SDK demands an *explicit* verdict: the header `X-Twophase-Verdict`. An answer without
  it, whatever its status, is `UNKNOWN`: a proxy's page cannot commit anything.
* A foreign producer speaks dtm's language, status first: 425 in progress, 409 rolled back, 200 committed
  unless the body carries FAILURE or ONGOING; any other status is unknown whatever its body.
* No answer (transport error, timeout) is unknown.
* *Strict* never looks for words: a 200 is a 200 whatever its body. A message asks for it, as those of our own SDK do,
  and it holds for its branches; an operator may choose it for all messages, and it holds for check-backs too.

gRPC and JSON-RPC have codes of their own; the HTTP statuses of the same meaning are here, so that one reading serves
all three.
"""

from __future__ import annotations

import enum
from typing import Final

VERDICT_HEADER = "x-twophase-verdict"
NOT_DONE: Final = "not_done"
"""The value of the verdict header in a branch's answer that says no.

With it a status of 200 was put there on the way, by a middleware of the service or a proxy.
"""


class Verdict(enum.Enum):
    """The producer's answer to a check-back."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    IN_PROGRESS = "in_progress"
    UNKNOWN = "unknown"


STATUS_OF_VERDICT: dict[Verdict, int] = {
    Verdict.COMMITTED: 200,
    Verdict.ROLLED_BACK: 409,
    Verdict.IN_PROGRESS: 425,
    Verdict.UNKNOWN: 500,
}
"""The status of a check-back route's answer.

A foreign coordinator understands it, too.
"""


class BranchResult(enum.StrEnum):
    """The result of one branch call."""

    SUCCEEDED = "succeeded"
    ONGOING = "ongoing"
    """Not done yet, asked to come again: the pause between attempts does not grow."""
    FAILED = "failed"
    """Refused (409 / FAILURE).

    A submitted message is never rolled back, so it is retried like an error.
    """
    ERROR = "error"
    """Any other status, a transport error or a timeout."""


_SUCCEEDED: Final = BranchResult.SUCCEEDED
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


def interpret_check_back(
    status: int, verdict_header: str | None, body: bytes, *, explicit: bool, strict: bool = False
) -> Verdict:
    """Return the verdict in a check-back's answer.

    Arguments:
        status: HTTP status of the answer; 0 when there was none.
        verdict_header: value of `X-Twophase-Verdict`, None when absent.
        body: the answer's body.
        explicit: the message demands the header.
        strict: the body decides nothing.

    >>> interpret_check_back(200, None, b'{"dtm_result":"SUCCESS"}', explicit=False)
    <Verdict.COMMITTED: 'committed'>
    >>> interpret_check_back(200, None, b"<html>welcome</html>", explicit=True)
    <Verdict.UNKNOWN: 'unknown'>
    """
    if verdict_header is not None:
        verdict = _VERDICTS.get(verdict_header.strip().lower(), Verdict.UNKNOWN)
        # A header that contradicts the status is no explicit verdict: something on the way rewrote one of them.
        return verdict if STATUS_OF_VERDICT[verdict] == status else Verdict.UNKNOWN
    if explicit:
        return Verdict.UNKNOWN
    if status == 425:
        return Verdict.IN_PROGRESS
    if status == 409:
        return Verdict.ROLLED_BACK
    if status != 200:
        return Verdict.UNKNOWN
    if strict:
        return Verdict.COMMITTED
    if b"ONGOING" in body:
        return Verdict.IN_PROGRESS
    if b"FAILURE" in body:
        return Verdict.ROLLED_BACK
    return Verdict.COMMITTED


def interpret_branch(status: int, body: bytes, *, strict: bool = False) -> BranchResult:
    """Return the result that a branch call's answer means (dtm-wire §3.2).

    Status 0 stands for no answer; `strict` judges by the status alone.

    >>> interpret_branch(200, b"ok"), interpret_branch(425, b""), interpret_branch(502, b"FAILURE")
    (<BranchResult.SUCCEEDED: 'succeeded'>, <BranchResult.ONGOING: 'ongoing'>, <BranchResult.ERROR: 'error'>)
    """
    if status == 425:
        return BranchResult.ONGOING
    if status == 409:
        return BranchResult.FAILED
    if status != 200:
        return BranchResult.ERROR
    if strict:
        return _SUCCEEDED
    if b"ONGOING" in body:
        return BranchResult.ONGOING
    if b"FAILURE" in body:
        return BranchResult.FAILED
    return _SUCCEEDED


_WORDS: Final = {
    BranchResult.FAILED.value: "FAILURE",
    Verdict.ROLLED_BACK.value: "FAILURE",
    BranchResult.ONGOING.value: "ONGOING",
    Verdict.IN_PROGRESS.value: "ONGOING",
}


def word_that_decided(status: int, result: str) -> str:
    """Return a sentence about the deciding word of a 200; empty without one.

    >>> word_that_decided(200, "failed")
    "its 200 answer contains the word FAILURE: dtm's rule; strict judges by status alone"
    >>> word_that_decided(409, "failed")
    ''
    """
    word = _WORDS.get(result, "") if status == 200 else ""
    return f"its 200 answer contains the word {word}: dtm's rule; strict judges by status alone" if word else ""


GRPC_OF_STATUS: dict[int, int] = {200: 0, 400: 3, 401: 16, 409: 10, 425: 9, 500: 2}
"""The gRPC codes that have the meaning of an HTTP status (dtm-wire §2)."""

_STATUS_OF_GRPC = {0: 200, 3: 400, 5: 404, 7: 403, 8: 429, 9: 425, 12: 501, 16: 401}
_NO_ANSWER_OF_GRPC = frozenset({1, 4, 14})
_STATUS_OF_JSON_RPC = {-32901: 409, -32902: 425}


def status_of_grpc(code: int, details: str) -> int:
    """Return the HTTP status with the meaning of a gRPC status (dtm-wire §2).

    0 where there was no answer.

    >>> [status_of_grpc(code, "") for code in (0, 10, 9, 2, 14)]
    [200, 409, 425, 500, 0]
    >>> status_of_grpc(10, "ONGOING")  # servers written for dtm before 1.10
    425
    """
    if code == 10:
        return 425 if details == "ONGOING" else 409
    if code in _NO_ANSWER_OF_GRPC:
        return 0
    return _STATUS_OF_GRPC.get(code, 500)


def status_of_json_rpc(code: int) -> int:
    """Return the HTTP status for a JSON-RPC error code (dtm-wire §1.5).

    >>> status_of_json_rpc(-32901), status_of_json_rpc(-32902), status_of_json_rpc(-32603)
    (409, 425, 500)
    """
    return _STATUS_OF_JSON_RPC.get(code, 500)
