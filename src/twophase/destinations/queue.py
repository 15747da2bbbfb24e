"""The destination of `queue://topic`: nothing is called.

The flush that decides a message appends its branches of queues. A delivery that meets one beside other branches finds
it done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twophase.core.errors import InvalidRequest
from twophase.core.queue_message import QUEUE_PREFIX, message_of
from twophase.destinations.base import Answer, Call


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

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:  # noqa: ARG002 -- the protocol names it
        """See `Destination.call`."""
        asyncio.get_running_loop().call_soon(on_answer, Answer(200))

    async def stop(self) -> None:
        """See `Destination.stop`."""
