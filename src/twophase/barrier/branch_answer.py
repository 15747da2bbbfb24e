"""Branch calls as HTTP, for every framework.

Every failure has its reply here, also an unexpected one. So no handler of the application answers it: its 200
would end the coordinator's calls, and the effect would be lost (I2). A framework only says which of its exceptions are
answers, and whom it tells about all others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.barrier.fault import Fault, described, fault_of, timed_out
from twophase.barrier.http_answer import HttpReply, refused
from twophase.core import failpoint
from twophase.core.errors import FunctionRefused, InvalidRequest, TwophaseError
from twophase.core.verdict import NOT_DONE, VERDICT_HEADER

REASON_CHARACTERS_MAX: Final = 500

_JSON: Final = {"content-type": "application/json"}
_OF_BODY: Final = frozenset({"content-type", "content-length", "content-encoding", "transfer-encoding"})
_REFUSALS: Final = range(400, 600)
"""The statuses that say no, for every coordinator."""

_log = logging.getLogger("twophase.barrier")


class Framework:
    """The part of a failure's answer that a web framework knows.

    This one knows nothing.
    """

    def answer_in(self, error: Exception) -> HttpReply | None:  # noqa: ARG002 -- for those that override it
        """Return the answer that an exception of the framework carries.

        None for any other exception.
        """
        return None

    def report(self, error: Exception) -> None:
        """Tell the service's log and error trackers of an exception, while it is handled."""
        _log.error("a branch call fails", exc_info=error)

    async def areport(self, error: Exception) -> None:
        """`report` in an event loop."""
        self.report(error)


def answer_branch(effect: Callable[[], object], framework: Framework | None = None) -> HttpReply:
    """Return the reply to a branch call whose `effect` is a call of `once`.

    200 after its commit, also when it had taken effect before; 409 for `BranchRefused` and 425 for `BranchOngoing`,
    with their text; 425 for a busy database; 400 when the request names no branch; 401 when it is not signed, 403 when
    a web page sends it; the status of the framework's own exception, if it is 400 or more; 500 for any other error,
    which is logged. It raises no `Exception`.
    """
    try:
        effect()
    except Exception as error:  # noqa: BLE001 -- each has its answer
        asked = framework or Framework()
        answer = _foreseen(error, asked)
        if answer is None:
            try:
                asked.report(error)
            except Exception:  # noqa: BLE001 -- of a log's handler or a signal's receiver
                _log.exception("an error cannot be reported")
            answer = _unforeseen(error)
        return _not_done(answer)
    return _branch_done()


async def aanswer_branch(effect: Callable[[], Awaitable[object]], framework: Framework | None = None) -> HttpReply:
    """`answer_branch` for `aonce`."""
    try:
        await effect()
    except Exception as error:  # noqa: BLE001 -- each has its answer
        asked = framework or Framework()
        answer = _foreseen(error, asked)
        if answer is None:
            try:
                await asked.areport(error)
            except Exception:  # noqa: BLE001 -- of a log's handler or a signal's receiver
                _log.exception("an error cannot be reported")
            answer = _unforeseen(error)
        return _not_done(answer)
    return _branch_done()


def refusal(status: int, why: object, headers: Mapping[str, str] | None = None) -> HttpReply:
    """Return the reply for an exception that carries a status and a reason.

    Arguments:
        why: a text, or a dict or a list of texts.
        headers: those of the exception; the ones that describe its body do not count.

    >>> refusal(404, "no order 7", {"Content-Type": "text/html"})
    HttpReply(status=404, headers={'content-type': 'application/json'}, body=b'{"message":"no order 7"}')
    """
    kept = {name: value for name, value in (headers or {}).items() if name.lower() not in _OF_BODY}
    text = json.dumps(why, default=str) if isinstance(why, dict | list) else str(why)
    return HttpReply(status, {**kept, **_JSON}, msgspec.json.encode({"message": _text(text)}))


def _branch_done() -> HttpReply:
    if failpoint.ARMED:
        failpoint.reach("branch.before_reply")
    return HttpReply(200, dict(_JSON), b'{"dtm_result":"SUCCESS"}')


def _not_done(answer: HttpReply) -> HttpReply:
    """Return the answer with the header for what says no.

    A middleware may give it the status 200.
    """
    return answer._replace(headers={**answer.headers, VERDICT_HEADER: NOT_DONE})


def _foreseen(error: Exception, framework: Framework) -> HttpReply | None:
    """Return the reply for a failure that has one; None for all others."""
    if isinstance(error, InvalidRequest):
        return refused(error)
    if isinstance(error, BranchRefused):
        return _failed(409, "FAILURE", str(error))
    if isinstance(error, BranchOngoing):
        return _failed(425, "ONGOING", str(error))
    raised = _raised_answer(error, framework)
    if raised is not None:
        return raised
    # A timeout of the function's own statement may end every call: it is an error. `once` raises BranchOngoing
    # where a timeout ends the wait for another call of this branch.
    if fault_of(error) is Fault.BUSY and not timed_out(error):
        why = described(error)
        _log.warning("a branch call meets a lock or a conflict, and is asked for again: %s", why)
        return _failed(425, "ONGOING", f"the database is busy: {why}")
    if isinstance(error, TwophaseError):
        return _with_remedy(error)
    return None


def _raised_answer(error: Exception, framework: Framework) -> HttpReply | None:
    """Return the answer that the function has raised.

    It is an error if it refuses nothing.
    """
    try:
        answer = framework.answer_in(error)
    except Exception:  # noqa: BLE001 -- of the application's
        _log.exception("the answer that a branch has raised cannot be read")
        return None
    if answer is None or answer.status in _REFUSALS:
        return answer
    return _with_remedy(
        FunctionRefused(
            f"the function raised an answer of status {answer.status}: its branch would count as done.",
            remedy="Return if the branch has taken effect; else raise BranchRefused, BranchOngoing or an error. "
            "Nothing was committed.",
        )
    )


def _with_remedy(error: TwophaseError) -> HttpReply:
    # One line says it: code, message, remedy. The traceback is mostly the database library's.
    _log.error("a branch call fails: %s", error)
    _log.debug("where the branch call failed", exc_info=error)
    content = {"code": error.code, "message": _text(error.message), "remedy": _text(error.remedy)}
    return HttpReply(500, dict(_JSON), msgspec.json.encode(content))


def _unforeseen(error: Exception) -> HttpReply:
    """Return the reply for any other error.

    The error's text may carry values, so it is only in the service's log.
    """
    return refusal(500, f"the branch call failed: {described(error)}; the service's log says where")


def _failed(status: int, dtm_result: str, why: str) -> HttpReply:
    """Return the reply to a branch that did not take effect.

    The reason is for `twophase explain`.
    """
    content: dict[str, object] = {"dtm_result": dtm_result}
    if why:
        content["message"] = _text(why)
    return HttpReply(status, dict(_JSON), msgspec.json.encode(content))


def _text(why: str) -> msgspec.Raw:
    """Return a reason as JSON, without the words that dtm's coordinator looks for.

    It looks for them anywhere in a body.
    """
    encoded = msgspec.json.encode(why[:REASON_CHARACTERS_MAX])
    return msgspec.Raw(encoded.replace(b"FAILURE", b"FAILUR\\u0045").replace(b"ONGOING", b"ONGOIN\\u0047"))
