"""The coordinator's HTTP requests and answers as bytes and errors.

The module is sans-IO (dtm-wire §1.2 to §1.4). It alone decides, for both drivers, what an answer means for the
caller. It keeps correctness rule 4: a submit that meets a succeeded message is success, and only a failed message is a
contrary decision.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from twophase.core import errors, many
from twophase.core.errors import (
    ConfigurationError,
    ContentConflict,
    ContraryDecision,
    CoordinatorUnreachable,
    Fate,
    ForgottenMessage,
    InvalidRequest,
    NotYetDelivered,
    Overloaded,
    QueuesElsewhere,
    Refused,
    StateConflict,
    TwophaseError,
    Unavailable,
    UnknownMessage,
)
from twophase.core.lifecycle import State
from twophase.core.limits import BODY_BYTES_MAX, require
from twophase.core.many import OneResult
from twophase.core.message import Message
from twophase.core.options import USUAL_OPTIONS, OptionFields, option_fields
from twophase.http_client.outcome import HttpResponse

API_PATH = "/api/dtmsvr"


class Operation(enum.Enum):
    """A producer's request; the value is the last part of its path."""

    PREPARE = "prepare"
    SUBMIT = "submit"
    ABORT = "abort"
    PREPARE_MANY = "prepare-many"
    SUBMIT_MANY = "submit-many"

    @property
    def path(self) -> str:
        """The path below the coordinator's address.

        >>> Operation.PREPARE.path, Operation.PREPARE_MANY.path
        ('/api/dtmsvr/prepare', '/api/twophase/prepare-many')
        """
        return _PATHS_OF_MANY.get(self) or f"{API_PATH}/{self.value}"


_PATHS_OF_MANY = {Operation.PREPARE_MANY: many.PREPARE_PATH, Operation.SUBMIT_MANY: many.SUBMIT_PATH}


class Reply(msgspec.Struct, frozen=True):
    """The fields of a coordinator's answer; every one may be missing."""

    dtm_result: str = ""
    message: str = ""
    code: str = ""
    state: str = ""
    prepared_at: int = 0
    url: str = ""


class HttpAnswer(msgspec.Struct, frozen=True):
    """An HTTP answer, as far as it matters here.

    `reply` is set where the content did not come as JSON.
    """

    status: int
    body: bytes
    retry_after: str | None = None
    reply: Reply | None = None


def answer_of(response: HttpResponse) -> HttpAnswer:
    """Return the answer that a response is.

    >>> answer_of(HttpResponse(503, [b"HTTP/1.1 503 -\\r\\nRetry-After: 2\\r\\n\\r\\n"], b"")).retry_after
    '2'
    """
    retry_after = response.header(b"retry-after") if response.status == 503 else None
    return HttpAnswer(response.status, response.body, None if retry_after is None else retry_after.decode("latin-1"))


def may_wait(body: bytes) -> bool:
    """Return True when a request may be answered only after branch calls.

    >>> may_wait(b'{"gid":"g","trans_type":"msg","wait_result":true}'), may_wait(b'{"gid":"g","trans_type":"msg"}')
    (True, False)
    """
    return b'"wait_result":true' in body


def is_from_twophase(answer: bytes) -> bool:
    """Return True for the answer to a prepare that only twophase's coordinator gives.

    >>> is_from_twophase(b'{"dtm_result":"SUCCESS","prepared_at":17}'), is_from_twophase(b'{"dtm_result":"SUCCESS"}')
    (True, False)
    """
    return b'"prepared_at":' in answer


class TransportFailure(Exception):
    """No answer came: refused, cut, timed out, or not HTTP.

    Transports raise it, and `exchange` handles it.
    """


class Disconnected(TransportFailure):
    """No connection, or one that broke.

    No coordinator runs there at this moment, as during a restart.
    """


class NotConnected(Disconnected):
    """No connection was made, so nothing was sent."""


class NotTrusted(TransportFailure):
    """No TLS connection; nothing was sent, and a repeat cannot help."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


class Transport(Protocol):
    """A blocking way to the coordinator."""

    def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """One request and its answer; raises TransportFailure."""
        ...

    def close(self) -> None:
        """Close what is idle."""
        ...


class AsyncTransport(Protocol):
    """The same on asyncio."""

    async def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """One request and its answer; raises TransportFailure."""
        ...

    async def close(self) -> None:
        """Close what is this event loop's."""
        ...


class _Step(msgspec.Struct, frozen=True):
    action: str


class _Request(OptionFields, frozen=True, omit_defaults=True):
    """dtm's request (dtm-wire §1.2); a default is not sent."""

    gid: str
    trans_type: str
    steps: list[_Step] = msgspec.field(default_factory=list)
    payloads: list[str] = msgspec.field(default_factory=list)
    query_prepared: str = ""
    protocol: str = "http"


_ABORT = Operation.ABORT
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reply, strict=False).decode
_decode_many = msgspec.json.Decoder(many.ManyReply).decode
_STATES = {
    "prepared": State.PREPARED,
    "submitted": State.SUBMITTED,
    "succeed": State.SUCCEEDED,
    "failed": State.FAILED,
}
_STATE_IN_MESSAGE = re.compile(r"current status '(\w+)'")


def _every_error(root: type[TwophaseError]) -> dict[str, type[TwophaseError]]:
    known = {root.code: root}
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            known.update(_every_error(child))
    return known


_ERROR_OF_CODE = _every_error(TwophaseError)


def encode_request(message: Message, operation: Operation) -> bytes:
    """The body of a request.

    Raises:
        InvalidRequest: a payload that is no UTF-8 text, which dtm's wire cannot carry.
        LimitExceeded: larger than a coordinator takes.

    >>> encode_request(Message("g", ()), Operation.ABORT)
    b'{"gid":"g","trans_type":"msg"}'
    """
    if operation is _ABORT:
        return _encode(_Request(message.gid, "msg"))
    try:
        payloads = [branch.payload.decode() for branch in message.branches]
    except UnicodeDecodeError as error:
        raise InvalidRequest("a payload is not UTF-8 text.", gid=message.gid) from error
    steps = [_Step(branch.url) for branch in message.branches]
    body = _encode(_request(message, steps, payloads))
    require(BODY_BYTES_MAX, len(body), gid=message.gid)
    return body


def _request(message: Message, steps: list[_Step], payloads: list[str]) -> _Request:
    options = message.options
    if options in USUAL_OPTIONS:  # without a dict of their fields, which would cost a fifth of the whole
        return _Request(
            message.gid,
            "msg",
            steps,
            payloads,
            message.check_url,
            message.protocol,
            explicit_verdict=options.explicit_verdict,
            strict=options.strict,
        )
    return _Request(message.gid, "msg", steps, payloads, message.check_url, message.protocol, **option_fields(options))


def pause_asked_ms(answer: HttpAnswer) -> int | None:
    """Return the pause that a 503 or 429 asks for, in ms.

    None when the answer asks for no pause.

    >>> pause_asked_ms(HttpAnswer(503, b"", "2")), pause_asked_ms(HttpAnswer(200, b""))
    (2000, None)
    """
    if answer.status not in {429, 503} or answer.retry_after is None:
        return None
    try:
        return max(0, round(float(answer.retry_after) * 1000))
    except (ValueError, OverflowError):
        return None  # an HTTP date, or nonsense: the backoff's own pause is used


def read_answer(operation: Operation, gid: str, answer: HttpAnswer) -> int:
    """Return the prepare's time from an answer, in ms since 1970.

    The time is by the store's clock; 0 when the answer carries no time. Other answers raise their error.

    Raises:
        StateConflict, ContentConflict, ContraryDecision, ForgottenMessage, UnknownMessage, TopicNotFound,
        InvalidRequest, NotYetDelivered: as the coordinator says, by its code, or by dtm's status and text.
        Overloaded, ShuttingDown: it says to come back later.
        CoordinatorUnreachable: the answer is not one of a coordinator.

    >>> read_answer(Operation.PREPARE, "g", HttpAnswer(200, b'{"dtm_result":"SUCCESS","prepared_at":17}'))
    17
    >>> read_answer(Operation.SUBMIT, "g", HttpAnswer(409, b'{"dtm_result":"FAILURE","state":"succeed"}'))
    0
    """
    reply = answer.reply
    if reply is None:
        try:
            reply = _decode(answer.body)
        except msgspec.MsgspecError:
            reply = Reply()
    if answer.status == 200 and reply.dtm_result == "SUCCESS":
        return reply.prepared_at
    state = reply.state or next(iter(_STATE_IN_MESSAGE.findall(reply.message)), "")
    if (
        operation is Operation.SUBMIT
        and answer.status == 409
        and state == "succeed"
        and reply.code != ContentConflict.code  # another message has succeeded under this gid, not this one
    ):
        return 0
    error = _refusal(operation, gid, answer, reply, state)
    if isinstance(error, Refused):
        error.state = _STATES.get(state)
        if operation is Operation.PREPARE and not isinstance(error, ForgottenMessage):
            error.fate = Fate.NOT_STARTED
    raise error


def read_many(operation: Operation, gids: Collection[str], answer: HttpAnswer) -> dict[str, TwophaseError | None]:
    """Return the error of each message of a request that holds many.

    A message that is done has none.

    Arguments:
        operation: the request that each message would be alone: PREPARE or SUBMIT.
        gids: the messages, in the order of the request.

    >>> reply = b'{"results":[{},{"code":"TP-2002","state":"submitted","message":"other branches"}]}'
    >>> read_many(Operation.PREPARE, ("a", "b"), HttpAnswer(200, reply))
    {'a': None, 'b': ContentConflict('other branches')}
    """
    if answer.status != 200:
        return {gid: _error_of(operation, gid, answer) for gid in gids}
    try:
        results = _decode_many(answer.body).results
        return {gid: _error_of_one(operation, gid, one) for gid, one in zip(gids, results, strict=True)}
    except (msgspec.MsgspecError, ValueError):
        return {gid: _foreign(operation.value, gid, answer, Reply(), "") for gid in gids}


def _error_of_one(operation: Operation, gid: str, result: OneResult) -> TwophaseError | None:
    if not result.code:
        return None
    reply = Reply("FAILURE", result.message, result.code, result.state)
    return _error_of(operation, gid, HttpAnswer(409, b"", reply=reply))


def _error_of(operation: Operation, gid: str, answer: HttpAnswer) -> TwophaseError | None:
    try:
        read_answer(operation, gid, answer)
    except TwophaseError as error:
        return error.with_traceback(None)
    return None


def refusal_of(what: str, answer: HttpAnswer) -> TwophaseError:
    """Return the error that a request of twophase's own is refused with.

    >>> refusal_of("receive", HttpAnswer(409, b'{"message":"gone","code":"TP-2020"}'))
    ReceiptStale('gone')
    """
    try:
        reply = _decode(answer.body)
    except msgspec.MsgspecError:
        reply = Reply()
    named = _ERROR_OF_CODE.get(reply.code)
    if named is QueuesElsewhere:
        return QueuesElsewhere(reply.message, url=reply.url)
    if named is not None:
        return named(reply.message)
    if answer.status in {404, 405}:
        return ConfigurationError(
            f"the coordinator has no {what}: it answered with status {answer.status}.",
            remedy="Give the address of a coordinator of twophase's, of this version.",
        )
    return _foreign(what, None, answer, Reply(), f"the coordinator answered {what} with status {answer.status}.")


def _described(operation: Operation, answer: HttpAnswer, reply: Reply, state: str) -> str:
    """Return the answer in words, without the ones for dtm's clients, such as FAILURE."""
    if answer.status == 409 and _STATE_IN_MESSAGE.match(reply.message) and state in _STATES:
        return f"{operation.value} is refused: the message is {_STATES[state]}."
    default = f"the coordinator answered {operation.value} with status {answer.status}."
    return reply.message.removesuffix("FAILURE").rstrip() or default


def _refusal(operation: Operation, gid: str, answer: HttpAnswer, reply: Reply, state: str) -> TwophaseError:
    text = _described(operation, answer, reply, state)
    if operation is Operation.SUBMIT and state == "failed":
        return ContraryDecision(text, gid=gid)
    if operation is Operation.ABORT and state in {"submitted", "succeed"}:
        return ContraryDecision(text, gid=gid)
    named = _ERROR_OF_CODE.get(reply.code)
    if named is not None:
        return named(text, gid=gid)
    if answer.status == 409 and reply.dtm_result == "FAILURE":
        if state or operation is not Operation.SUBMIT:
            return StateConflict(text, gid=gid)
        return NotYetDelivered(text, gid=gid)  # dtm's answer to wait_result (dtm-wire §1.4)
    if answer.status in {429, 503} and answer.retry_after is not None:
        return Overloaded(text, gid=gid)
    return _foreign(operation.value, gid, answer, reply, text)


def _foreign(what: str, gid: str | None, answer: HttpAnswer, reply: Reply, text: str) -> TwophaseError:
    """Read an answer without twophase's code: dtm's, a proxy's, or another server's."""
    if reply.message.startswith("no TransGlobal"):
        return UnknownMessage(text, gid=gid)
    if answer.status == 500 and reply.message:
        return Unavailable(text, gid=gid)
    if answer.status == 400 and reply.message:
        return InvalidRequest(text, gid=gid)
    excerpt: Any = answer.body[:80]
    return CoordinatorUnreachable(
        f"no coordinator answered {what}: status {answer.status}, beginning {excerpt!r}.", gid=gid
    )
