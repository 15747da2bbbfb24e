"""The messages that wait to be sent over one stream of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from twophase.coordinator.queues import Question
from twophase.rocketmq_wire.answers import encode_question
from twophase.server.rocketmq.checking import asked
from twophase.server.sessions import QUESTION_BYTES_MAX, QUESTIONS_MAX


class Outbox:
    """See the module; implements `sessions.Channel`.

    Arguments:
        keep: counts the bytes that wait in the server's budget; False when it does not suffice.
    """

    def __init__(self, keep: Callable[[int], bool]) -> None:
        self._keep = keep
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._bytes = self._held = 0

    def hold(self, size: int) -> bool:
        """Count `size` bytes as long as the stream lives.

        Returns False when the budget does not suffice.
        """
        if not self._keep(size + self._bytes):
            return False
        self._held = size
        return True

    def offer(self, question: Question) -> bool:
        """Send a question soon; False while too much waits. Implements `sessions.Channel`."""
        if self._waiting.qsize() >= QUESTIONS_MAX or self._bytes >= QUESTION_BYTES_MAX:
            return False
        message = encode_question(*asked(question), question.transaction_id)
        if not self.has_room(len(message)):
            return False
        self.put(message)
        return True

    def has_room(self, size: int) -> bool:
        """Count a message that is put next; False when the budget does not suffice."""
        return self._keep(self._held + self._bytes + size)

    def put(self, message: bytes) -> None:
        """Add a message; it is sent soon."""
        self._bytes += len(message)
        self._waiting.put_nowait(message)

    async def send_by(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what waits and what will, one after the other, until `send` raises."""
        while True:
            message = await self._waiting.get()
            await send(message)
            self._bytes -= len(message)
            self._keep(self._held + self._bytes)
            self._waiting.task_done()

    async def empty(self) -> None:
        """Wait until everything was sent."""
        await self._waiting.join()
