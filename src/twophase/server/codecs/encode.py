"""Encoding of an outcome: status, body and bytes that dtm's clients read.

The status decides (200 ok, 409 refused, 500 or 4xx error, 503 come again); `dtm_result` and the texts, misspelling
included, are what existing clients and their tests look for. Beside them stand twophase's `code`, the message's `state`
and the remedy. A 200 never carries the words that mean failure to those clients. Source: dtm-wire §1.3, §1.4, §10.
"""

from __future__ import annotations

import enum
from http import HTTPStatus
from typing import Final

import msgspec

from twophase.core.errors import (
    ConfigurationError,
    ContraryDecision,
    Forbidden,
    ForgottenMessage,
    InvalidRequest,
    NotYetDelivered,
    PageRefused,
    QueuesElsewhere,
    QuotaExceeded,
    Refused,
    ServerFault,
    StateConflict,
    StoreError,
    TopicNotFound,
    TopicRefused,
    TwophaseError,
    Unauthenticated,
    Unavailable,
    UnknownMessage,
    WrongHost,
)
from twophase.core.lifecycle import State
from twophase.core.verdict import BranchResult

JSON_TYPE: Final = b"application/json; charset=utf-8"
SAFE_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of every answer: no browser guesses its type, and no cache keeps it."""
CHALLENGE: Final = "Bearer"
"""The scheme by which a client names itself (RFC 9110 §11.6.1)."""
RETRY_AFTER_S: Final = 1
WIRE_STATES: Final[dict[State, str]] = {
    State.PREPARED: "prepared",
    State.SUBMITTED: "submitted",
    State.SUCCEEDED: "succeed",
    State.FAILED: "failed",
}
_encoder = msgspec.json.Encoder()
_COME_AGAIN: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
_SAFE: Final = b"".join(b"%b: %b\r\n" % header for header in SAFE_HEADERS)


class Route(enum.Enum):
    """A hot route; the value is dtm's text of its refusal."""

    PREPARE = "current status '{}', cannot prepare. FAILURE"
    SUBMIT = "current status '{}', cannot sumbmit. FAILURE"
    ABORT = "trans type: 'msg' current status '{}', cannot abort. FAILURE"


class Answer(msgspec.Struct, frozen=True):
    """Status, JSON body, and seconds for Retry-After (0: none)."""

    status: int
    body: bytes
    retry_after_s: int = 0


class Refusal(msgspec.Struct, frozen=True):
    """The reason of a refusal, for every wire format to write in its own way.

    `status` is HTTP's.
    """

    status: int
    message: str
    code: str
    state: str
    remedy: str

    @property
    def failed(self) -> bool:
        """True when dtm's clients read FAILURE.

        The reason is the message's state, or an answer of its branches.
        """
        return self.status == HTTPStatus.CONFLICT

    @property
    def retry_after_s(self) -> int:
        """Seconds after which the same request may succeed; 0: none."""
        return RETRY_AFTER_S if self.status in _COME_AGAIN else 0


class Failure(msgspec.Struct, omit_defaults=True):
    """The body of every refusal over HTTP.

    `url`: the node to ask instead, with TP-3021.
    """

    message: str
    dtm_result: str = ""
    code: str = ""
    state: str = ""
    remedy: str = ""
    url: str = ""


def success_body(prepared_at_ms: int) -> bytes:
    """Return the body of a 200.

    >>> success_body(1_700_000_000_000)
    b'{"dtm_result":"SUCCESS","prepared_at":1700000000000}'
    """
    if prepared_at_ms <= 0:
        return b'{"dtm_result":"SUCCESS"}'
    return b'{"dtm_result":"SUCCESS","prepared_at":%d}' % prepared_at_ms


def refusal(
    error: TwophaseError,
    *,
    route: Route | None = None,
    state: State = State.ABSENT,
    result: BranchResult | None = None,
) -> Refusal:
    """Return the refusal of a request.

    Arguments:
        error: why it was refused.
        route: the request, None when it never got that far.
        state: its message's state, ABSENT without a message.
        result: with wait_result, the result of the first delivery round.

    >>> refusal(StateConflict(), route=Route.SUBMIT, state=State.SUCCEEDED).message
    "current status 'succeed', cannot sumbmit. FAILURE"
    """
    # dtm answers 500 to a submit that waited for a branch in trouble, 409 when the branch refused or is not done.
    status = 500 if isinstance(error, NotYetDelivered) and result is BranchResult.ERROR else _status(error)
    message = error.message
    if isinstance(error, StateConflict | ContraryDecision) and route is not None and state in WIRE_STATES:
        message = route.value.format(WIRE_STATES[state])
    elif isinstance(error, UnknownMessage):
        message = f"no TransGlobal with gid: {error.gid or ''} found"
    elif isinstance(error, NotYetDelivered):
        message = _unfinished(status, "" if result in {None, BranchResult.ONGOING} else message)
    elif status == HTTPStatus.CONFLICT and not message.endswith("FAILURE"):
        message = f"{message} FAILURE"
    return Refusal(status, message, error.code, WIRE_STATES.get(state, ""), error.remedy)


def _unfinished(status: int, why: str) -> str:
    """Return the text for wait_result: dtm's, and the reason.

    A refusal ends with the word that dtm's clients look for.

    >>> _unfinished(409, "branch 01 answered 409: no stock")
    'wait result not return success: branch 01 answered 409: no stock FAILURE'
    >>> _unfinished(409, "")
    'wait result not return success: FAILURE'
    """
    text = f"wait result not return success: {why}".rstrip()
    return text if status != HTTPStatus.CONFLICT or text.endswith("FAILURE") else f"{text} FAILURE"


def failure(
    error: TwophaseError,
    *,
    route: Route | None = None,
    state: State = State.ABSENT,
    result: BranchResult | None = None,
) -> Answer:
    """Return the HTTP answer to a refused request; arguments as `refusal`.

    >>> failure(StateConflict(), route=Route.SUBMIT, state=State.SUCCEEDED).status
    409
    """
    refused = refusal(error, route=route, state=state, result=result)
    body = Failure(
        refused.message,
        dtm_result="FAILURE" if refused.failed else "",
        code=refused.code,
        state=refused.state,
        remedy=refused.remedy,
        url=error.url if isinstance(error, QueuesElsewhere) else "",
    )
    return Answer(refused.status, _encoder.encode(body), refused.retry_after_s)


def _status(error: TwophaseError) -> int:
    match error:
        case UnknownMessage() | TopicNotFound() | TopicRefused():
            return 500  # dtm answers so, and its clients' tests expect it
        case ServerFault():
            return 500  # not 503: to come again at once will not help
        case ForgottenMessage():
            return 410  # not 409: that would claim the message was refused, and no record is left to tell
        case Refused():
            return 409
        case Unauthenticated():
            return 401
        case Forbidden():
            return 403
        case PageRefused():
            return 403
        case WrongHost():
            return 421
        case InvalidRequest():
            return 400
        case QuotaExceeded():
            return 429
        case Unavailable() | StoreError() | ConfigurationError():
            return 503  # a setting that cannot work any more (a certificate, a dropped database) is the store's fault
        case _:
            return 500


def harmless(body: bytes) -> bytes:
    r"""Return the same JSON without the words that dtm's clients take for a refusal.

    Those clients look for the literal words in a 200, too (dtm-wire §1.3).

    >>> harmless(b'{"url":"http://b/FAILURE"}')
    b'{"url":"http://b/FAILUR\\u0045"}'
    """
    if b"FAILURE" in body or b"ONGOING" in body:
        # Both words can only stand inside a JSON string, where a letter may be written as its escape.
        return body.replace(b"FAILURE", b"FAILUR\\u0045").replace(b"ONGOING", b"ONGOIN\\u0047")
    return body


def head(status: int, date: bytes) -> bytes:
    """Return the status line and the headers that do not depend on the body.

    The final empty line is not included.
    """
    phrase = HTTPStatus(status).phrase.encode()
    return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%bcontent-type: %b\r\n" % (status, phrase, date, _SAFE, JSON_TYPE)


def success_response(success_head: bytes, prepared_at_ms: int) -> bytes:
    """Return the whole response to a request that succeeded.

    `success_head`: `head` of a 200.
    """
    body = success_body(prepared_at_ms)
    return b"%bcontent-length: %d\r\n\r\n%b" % (success_head, len(body), body)


def response(answer: Answer, date: bytes, *, closes: bool) -> bytes:
    """Return the whole response as bytes."""
    extra = b"connection: close\r\n" if closes else b""
    if answer.retry_after_s:
        extra += b"retry-after: %d\r\n" % answer.retry_after_s
    if answer.status == HTTPStatus.UNAUTHORIZED:
        extra += b"www-authenticate: %b\r\n" % CHALLENGE.encode()
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (head(answer.status, date), extra, len(answer.body), answer.body)
