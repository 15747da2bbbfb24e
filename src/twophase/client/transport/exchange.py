"""One request to the coordinator, repeated within a bounded time; sans-IO.

Prepare, submit and abort are idempotent (I7), so a request whose answer was lost is simply sent again. The
bound is what keeps a caller that has committed from hanging: the check-back finishes what a submit could not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import msgspec

from twophase.client.transport.wire import (
    Disconnected,
    HttpAnswer,
    NotConnected,
    NotTrusted,
    Operation,
    TransportFailure,
    encode_request,
    pause_asked_ms,
    read_answer,
    read_many,
)
from twophase.core.errors import (
    ConfigurationError,
    CoordinatorUnreachable,
    Fate,
    NotPrepared,
    ShuttingDown,
    TlsFailed,
    TwophaseError,
)
from twophase.core.many import is_later
from twophase.core.message import Message
from twophase.core.schedule import DEFAULT_REQUEST_TIMEOUT_MS, Schedule

LATER = frozenset({429, 502, 503, 504})
"""Statuses that say to come again, of a coordinator or of a proxy before it."""
_UNKNOWN_PATH = frozenset({404, 405})
_TOGETHER = {Operation.PREPARE: Operation.PREPARE_MANY, Operation.SUBMIT: Operation.SUBMIT_MANY}
GONE = (ShuttingDown, CoordinatorUnreachable)
"""Errors of `LATER` that mean no coordinator is at work.

A coordinator stops, or a proxy has none behind it.
"""

Encode = Callable[[Message, Operation], bytes]


class Send(msgspec.Struct, frozen=True):
    """The command to send one request.

    The result is its `HttpAnswer`; a failure to get one is a `TransportFailure`.
    """

    operation: Operation
    body: bytes
    timeout_ms: int


class Pause(msgspec.Struct, frozen=True):
    """Command: wait."""

    pause_ms: int


class RequestBounds(msgspec.Struct, frozen=True):
    """The time and the tries that a caller spends on a request.

    `timeout_ms` bounds one try, `total_ms` all of them with their pauses. `attempts` bounds the tries that
    a coordinator left without an answer or was too busy for. A try that met no coordinator is not counted: it costs
    nothing, and a restart must not use all of them up.
    """

    timeout_ms: int = 5_000
    attempts: int = 4
    total_ms: int = 10_000
    backoff: Schedule = Schedule(first_ms=50, cap_ms=1_000)


class FlowRuntime(msgspec.Struct, frozen=True):
    """Time and chance, given from outside so that tests own them."""

    wall_ms: Callable[[], int]
    """Milliseconds since 1970."""
    monotonic_s: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    chance: Callable[[], float]


def _waiting_ms(message: Message, operation: Operation) -> int:
    """Return the time that wait_result adds to a submit's time.

    The coordinator answers after one round of branch calls.
    """
    if not message.options.wait_result or operation is not Operation.SUBMIT:
        return 0
    rounds = 1 if message.options.concurrent else max(1, len(message.branches))
    return (message.options.request_timeout_ms or DEFAULT_REQUEST_TIMEOUT_MS) * rounds


def exchange(
    message: Message,
    operation: Operation,
    bounds: RequestBounds,
    runtime: FlowRuntime,
    encode: Encode = encode_request,
) -> Generator[Send | Pause, HttpAnswer, int]:
    """Send a request until it is answered; returns prepare's time (`read_answer`).

    Arguments:
        encode: writes the body as the transport's wire wants it.

    Raises:
        what `read_answer` raises, and CoordinatorUnreachable when no answer came within the bounds; its fate is
        "unchanged" when no try was sent.
    """
    body = encode(message, operation)
    waiting_ms = _waiting_ms(message, operation)
    left_ms = bounds.total_ms + waiting_ms
    deadline_s = runtime.monotonic_s() + left_ms / 1000
    timeout_ms = bounds.timeout_ms + waiting_ms
    tries = counted = 0
    is_sent = False
    while True:
        tries += 1
        asked_ms: int | None = None
        cause: BaseException | None = None
        try:
            answer = yield Send(operation, body, min(timeout_ms, left_ms))
            if answer.status not in LATER:
                return read_answer(operation, message.gid, answer)
            asked_ms = pause_asked_ms(answer)
            failure = _refusal(operation, message.gid, answer)
            gone = isinstance(failure, GONE)
            is_sent = True
        except NotTrusted as error:
            failed = _tls_failed(error, operation, message.gid, is_sent=is_sent)
            raise failed from (error.__cause__ or error).with_traceback(None)
        except TransportFailure as error:
            is_sent = is_sent or not isinstance(error, NotConnected)
            failure = _no_answer(operation, message.gid, tries, error, is_sent=is_sent)
            gone = isinstance(error, Disconnected)
            # One cause, and without the frames of the transport: the failure says all that they could.
            cause = (error.__cause__ or error).with_traceback(None)
        counted += not gone
        pause_ms = asked_ms or bounds.backoff.pause_ms(tries, runtime.chance())
        if counted >= bounds.attempts or runtime.monotonic_s() + pause_ms / 1000 >= deadline_s:
            raise failure from cause
        yield Pause(pause_ms)
        left_ms = max(1, int((deadline_s - runtime.monotonic_s()) * 1000))


def exchange_many(
    operation: Operation, requests: Mapping[str, bytes], bounds: RequestBounds, runtime: FlowRuntime
) -> Generator[Send | Pause, HttpAnswer, dict[str, TwophaseError | None]]:
    """Send many messages in one request; those that must come again are sent again.

    Arguments:
        operation: the request that each message would be alone: PREPARE or SUBMIT.
        requests: that request's body of each gid, at most `MESSAGES_MAX`.

    Returns:
        the error of each gid; None when it is done.

    Raises:
        ConfigurationError: the coordinator takes no such request.
    """
    together = _TOGETHER[operation]
    ended: dict[str, TwophaseError | None] = {}
    left = dict(requests)
    is_sent = False
    left_ms = bounds.total_ms
    deadline_s = runtime.monotonic_s() + left_ms / 1000
    tries = counted = 0
    while True:
        tries += 1
        asked_ms: int | None = None
        try:
            body = b'{"messages":[%b]}' % b",".join(left.values())
            answer = yield Send(together, body, min(bounds.timeout_ms, left_ms))
            if answer.status in _UNKNOWN_PATH:
                raise ConfigurationError(
                    f"the coordinator has no {together.value}: it answered with status {answer.status}.",
                    remedy="Send each message alone. Only twophase's coordinator takes many in one request.",
                )
            asked_ms = pause_asked_ms(answer)
            errors = read_many(operation, left, answer)
            again = {gid for gid, error in errors.items() if answer.status in LATER or (error and is_later(error.code))}
            gone = any(isinstance(errors[gid], GONE) for gid in again)
            is_sent = True
        except NotTrusted as error:
            return ended | {gid: _tls_failed(error, operation, gid, is_sent=is_sent) for gid in left}
        except TransportFailure as error:
            is_sent = is_sent or not isinstance(error, NotConnected)
            errors = {gid: _no_answer(operation, gid, tries, error, is_sent=is_sent) for gid in left}
            again = set(left)
            gone = isinstance(error, Disconnected)
        ended |= errors
        left = {gid: left[gid] for gid in left if gid in again}
        counted += not gone
        pause_ms = asked_ms or bounds.backoff.pause_ms(tries, runtime.chance())
        if not left or counted >= bounds.attempts or runtime.monotonic_s() + pause_ms / 1000 >= deadline_s:
            return ended
        yield Pause(pause_ms)
        left_ms = max(1, int((deadline_s - runtime.monotonic_s()) * 1000))


def not_prepared(error: TwophaseError, gid: str) -> NotPrepared:
    """Return the error of a local transaction whose prepare got no usable answer."""
    remedy = f"{error.remedy} {NotPrepared.remedy}" if isinstance(error, TlsFailed) else None
    return NotPrepared(f"{error.message} The local transaction was not started.", gid=gid, remedy=remedy)


def _no_answer(
    operation: Operation, gid: str, tries: int, error: TransportFailure, *, is_sent: bool
) -> CoordinatorUnreachable:
    """The error of a request that no coordinator has answered.

    Arguments:
        is_sent: one of its tries may have reached a coordinator.
    """
    failure = CoordinatorUnreachable(f"{operation.value} got no answer in {tries} attempts: {error}.", gid=gid)
    if not is_sent:
        failure.fate = Fate.UNCHANGED
    return failure


def _tls_failed(error: NotTrusted, operation: Operation, gid: str, *, is_sent: bool) -> TlsFailed:
    """Return the error of a request whose last try met no trusted coordinator."""
    failed = TlsFailed(f"{operation.value} was not sent: {error}.", gid=gid, remedy=error.remedy or None)
    if is_sent:
        failed.fate = Fate.UNDECIDED  # an earlier try may have been carried out
    return failed


def _refusal(operation: Operation, gid: str, answer: HttpAnswer) -> TwophaseError:
    """The error that an answer of `LATER` stands for."""
    try:
        read_answer(operation, gid, answer)
    except TwophaseError as error:
        return error
    raise AssertionError("no such status is a success")
