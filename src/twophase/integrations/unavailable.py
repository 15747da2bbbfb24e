"""The answer to a caller whose message was not prepared.

No coordinator could be asked.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.barrier.http_answer import HttpReply
from twophase.core.errors import Fate, StoreError, TwophaseError, Unavailable

RETRY_AFTER_S: Final = 1


def reply_to(error: BaseException) -> HttpReply | None:
    """Return 503 with Retry-After for an error of prepare; None for every other error.

    The fate tells: of these errors, only what was raised before a local transaction began says "not started".
    The text names no address, because it goes to the service's own callers. It speaks of this message alone: what the
    request did before is not known here.

    >>> from twophase.core.errors import CoordinatorUnreachable, NotPrepared
    >>> reply_to(NotPrepared()).status, reply_to(CoordinatorUnreachable())
    (503, None)
    """
    if not isinstance(error, Unavailable | StoreError) or error.fate is not Fate.NOT_STARTED:
        return None
    return HttpReply(503, {"content-type": "application/json", "retry-after": str(RETRY_AFTER_S)}, _body(error))


def _body(error: TwophaseError) -> bytes:
    message = "No coordinator could take the message of this request. The message's transaction was not started."
    return msgspec.json.encode({"code": error.code, "message": message})
