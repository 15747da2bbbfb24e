"""The destination of `queue://topic`: nothing is called.

The flush that decides a message appends its branches of queues. A delivery that meets one beside other branches finds
it done. Keeps I1 and I2: an address that the flush would not append is accepted nowhere, and a queue answers no
check-back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twophase.core.errors import InvalidRequest
from twophase.core.queue_message import ANSWERS_NO_CHECK, QUEUE_PREFIX, message_of
from twophase.destinations.base import Answer, Call

_OF_A_BRANCH: Final = ("op", "action")
_APPENDED: Final = Answer(200)
_NO_PRODUCER: Final = Answer(0, error=ANSWERS_NO_CHECK)


class QueueDestination:
    """Answers for branches that are in their queue already."""

    def accepts(self, url: str) -> str | None:
        """See `Destination.accepts`."""
        try:
            message_of(url, b"")
        except InvalidRequest as error:
            return f"bad_url: {error.message}"
        return None

    def key(self, url: str) -> str:  # noqa: ARG002 -- the protocol names it
        """See `Destination.key`: all queues are one."""
        return QUEUE_PREFIX

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        """See `Destination.call`."""
        answer = _APPENDED if _OF_A_BRANCH in call.query else _NO_PRODUCER
        asyncio.get_running_loop().call_soon(on_answer, answer)

    async def stop(self) -> None:
        """See `Destination.stop`."""
