"""Queues' requests: their reading, their topics, and the form of refusals."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request

from twophase.core.errors import InvalidRequest, LimitExceeded, TwophaseError, UnknownMessage
from twophase.core.limits import BODY_BYTES_MAX
from twophase.core.queue_message import full_name
from twophase.server.codecs.encode import Answer, failure
from twophase.server.identity.caller import Caller

Asked = TypeVar("Asked")
QUEUES_TAG: Final = "queues"
STALE: Final = "TP-2020: the message was delivered again or done since"
NO_QUEUE: Final = "TP-1020: there is no such topic or group, and the first use does not create one; or as any request"


POLL_BYTES_MAX: Final = 32 * 1024
"""The longest body of a long poll, which keeps it in memory."""


async def read(request: Request, kind: type[Asked], bytes_max: int = BODY_BYTES_MAX.value) -> Asked:
    """Return a request's body.

    Raises:
        InvalidRequest: it is not what the path takes; the text names the field.
        LimitExceeded: it is longer than `bytes_max`.
    """
    body = await request.body()
    if len(body) > bytes_max:
        raise LimitExceeded(f"the request has {len(body)} bytes, at most {bytes_max} are allowed here.")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the request does not fit this path: {error}.") from error


def refuse(error: TwophaseError) -> Answer:
    """Return the answer to a refused request: 404 where there is no such message."""
    answer = failure(error)
    return msgspec.structs.replace(answer, status=HTTPStatus.NOT_FOUND) if isinstance(error, UnknownMessage) else answer


def require_topic(caller: Caller, namespace: str, topic: str) -> None:
    """Refuse a topic that the token's entry does not allow.

    Raises:
        Forbidden: its destinations have others alone. InvalidRequest: no topic has such a name.
    """
    name = full_name(namespace, topic)
    if caller.limited:
        caller.require_queue(name)
