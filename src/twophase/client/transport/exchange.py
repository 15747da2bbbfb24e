"""One request to the coordinator, tried a bounded number of times within a bounded time; sans-IO.

Prepare, submit and abort are idempotent (I7), so a request whose answer was lost is simply sent again. The
bound is what keeps a caller that has committed from hanging: the check-back finishes what a submit could not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from twophase.client.transport.wire import (
    HttpAnswer,
    Operation,
    TransportFailure,
    encode_request,
    pause_asked_ms,
    read_answer,
)
from twophase.core.errors import CoordinatorUnreachable
from twophase.core.message import Message
from twophase.core.schedule import DEFAULT_REQUEST_TIMEOUT_MS, Schedule

Encode = Callable[[Message, Operation], bytes]


class Send(msgspec.Struct, frozen=True):
    """Command: send one request; the result is its `HttpAnswer`, a failure to get one a `TransportFailure`."""

    operation: Operation
    body: bytes
    timeout_ms: int


class Pause(msgspec.Struct, frozen=True):
    """Command: wait."""

    pause_ms: int


class Patience(msgspec.Struct, frozen=True):
    """How long a caller waits for the coordinator.

    `request_timeout_ms` bounds one try, `attempts` their number, `patience_ms` all of them with their pauses.
    """

    request_timeout_ms: int = 5_000
    attempts: int = 4
    patience_ms: int = 10_000
    backoff: Schedule = Schedule(first_ms=50, cap_ms=1_000)


class Surroundings(msgspec.Struct, frozen=True):
    """Time and chance, given from outside so that tests own them."""

    wall_ms: Callable[[], int]
    """Milliseconds since 1970."""
    monotonic_ms: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    chance: Callable[[], float]


def _waiting_ms(message: Message, operation: Operation) -> int:
    """What wait_result adds to a submit's time: the coordinator answers after one round of branch calls."""
    if not message.options.wait_result or operation is not Operation.SUBMIT:
        return 0
    rounds = 1 if message.options.concurrent else max(1, len(message.branches))
    return (message.options.request_timeout_ms or DEFAULT_REQUEST_TIMEOUT_MS) * rounds


def exchange(
    message: Message,
    operation: Operation,
    patience: Patience,
    surroundings: Surroundings,
    encode: Encode = encode_request,
) -> Generator[Send | Pause, HttpAnswer, int]:
    """Send a request until it is answered; returns prepare's time (`read_answer`).

    Arguments:
        encode: writes the body as the transport's wire wants it.

    Raises:
        what `read_answer` raises, and CoordinatorUnreachable when no answer came within the bounds.
    """
    body = encode(message, operation)
    waiting_ms = _waiting_ms(message, operation)
    left_ms = patience.patience_ms + waiting_ms
    deadline_ms = surroundings.monotonic_ms() + left_ms
    timeout_ms = patience.request_timeout_ms + waiting_ms
    attempt = 0
    while True:
        attempt += 1
        failure: TransportFailure | None = None
        answer: HttpAnswer | None = None
        try:
            answer = yield Send(operation, body, min(timeout_ms, left_ms))
        except TransportFailure as error:
            failure = error
        if answer is not None and answer.status != 503:
            return read_answer(operation, message.gid, answer)
        asked_ms = pause_asked_ms(answer) if answer is not None else None
        pause_ms = patience.backoff.pause_ms(attempt, surroundings.chance()) if asked_ms is None else asked_ms
        if attempt >= patience.attempts or surroundings.monotonic_ms() + pause_ms >= deadline_ms:
            if answer is not None:
                return read_answer(operation, message.gid, answer)
            raise CoordinatorUnreachable(
                f"{operation.value} got no answer in {attempt} attempts: {failure}.", gid=message.gid
            ) from failure
        yield Pause(pause_ms)
        left_ms = max(1, int(deadline_ms - surroundings.monotonic_ms()))
