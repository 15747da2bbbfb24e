"""The status codes of refusals.

The codes are those that a broker of RocketMQ 5.5 answers to the same mistake. They stand in the answer; the gRPC call
ends with OK, because clients take another end for a broken connection and call again at once.
"""

from __future__ import annotations

from typing import Final

from twophase.core import errors
from twophase.core.errors import (
    ContentConflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    QueueNotFound,
    QueuesUnavailable,
    ReceiptInvalid,
    ReceiptStale,
    TooManyTopics,
    TwophaseError,
    Unauthenticated,
    WrongMessageKind,
)
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.requests import BrokenMessage
from twophase.rocketmq_wire.values import Status

OK: Final = Status(Code.OK)
_CODES: Final = (
    (Unauthenticated, Code.UNAUTHORIZED),
    (Forbidden, Code.FORBIDDEN),
    (QueueNotFound, Code.TOPIC_NOT_FOUND),
    (WrongMessageKind, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (ReceiptInvalid, Code.INTERNAL_SERVER_ERROR),
    (ReceiptStale, Code.INVALID_RECEIPT_HANDLE),
    (ContentConflict, Code.ILLEGAL_MESSAGE_ID),
    (errors.Refused, Code.INVALID_TRANSACTION_ID),
    (Overloaded, Code.TOO_MANY_REQUESTS),
    (QueuesUnavailable, Code.HA_NOT_AVAILABLE),
    (TooManyTopics, Code.TOO_MANY_REQUESTS),
    (LimitExceeded, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    (InvalidRequest, Code.BAD_REQUEST),
)


class Refused(InvalidRequest):
    """A request that RocketMQ's interface has a code of its own for."""

    def __init__(self, status: Code, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: TwophaseError | BrokenMessage) -> Status:
    """Return the status that tells a client of an error.

    >>> status_of(Refused(Code.ILLEGAL_TOPIC, "no topic")).code.name
    'ILLEGAL_TOPIC'
    """
    if isinstance(error, BrokenMessage):
        return Status(Code.BAD_REQUEST, f"{error}.")
    if isinstance(error, Refused):
        return Status(error.status, error.message)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_SERVER_ERROR)
    return Status(code, str(error))
