"""Acts of a consumer about one delivery: acknowledge, refuse, keep, give up.

Acts about one message go one after the other, because an extension changes the receipt by which the next act names it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from twophase.client.queues.messages import Received
from twophase.client.queues.requests import QueueRequests
from twophase.core.errors import ReceiptStale, TwophaseError
from twophase.core.queue_api import (
    ACK_PATH,
    DEAD_LETTER_PATH,
    EXTEND_PATH,
    GIVE_BACK_PATH,
    NACK_PATH,
    REASON_CHARACTERS_MAX,
    Extend,
    Extended,
    GiveUp,
    Nack,
    Nacked,
    Noted,
    ReceiptResults,
    Receipts,
)

_RENEWALS: Final = 3
"""Extensions in the time of a lease."""


class Holding:
    """The acts of one consumer. Each returns False where the receipt is stale.

    Then the message is done, or was delivered again, and another delivery decides.
    """

    def __init__(self, requests: QueueRequests) -> None:
        self._requests = requests
        self._locks: WeakKeyDictionary[Received, asyncio.Lock] = WeakKeyDictionary()
        self._nodes: WeakKeyDictionary[Received, str] = WeakKeyDictionary()

    def taken(self, message: Received, url: str) -> Received:
        """Return a message that the node at this URL gave; acts about it go there first."""
        self._nodes[message] = url
        return message

    async def ack(self, message: Received) -> bool:
        """Note that a message is done; True when that is durable."""
        return await self._each(ACK_PATH, message)

    async def give_back(self, message: Received) -> bool:
        """Let others have a message that was not begun; the delivery does not count."""
        return await self._each(GIVE_BACK_PATH, message)

    async def _each(self, path: str, message: Received) -> bool:
        async with self._lock(message):
            names = _names(message)
            asked = Receipts(group=names["group"], topic=names["topic"], receipts=(message.receipt,))
            asked.namespace = message.namespace
            (result,) = (await self._requests.ask(path, asked, ReceiptResults, self._nodes.get(message))).results
        if result.code and result.code != ReceiptStale.code:
            raise TwophaseError(result.message)
        return not result.code

    async def nack(self, message: Received, pause_ms: int | None) -> bool:
        """Have a message delivered again after a pause; None: the group's."""
        return await self._act(NACK_PATH, message, Nack, Nacked, attempt=message.attempt, pause_ms=pause_ms)

    async def give_up(self, message: Received, reason: str) -> bool:
        """Move a message into the dead letters."""
        return await self._act(DEAD_LETTER_PATH, message, GiveUp, Noted, reason=reason[:REASON_CHARACTERS_MAX])

    async def _act(self, path: str, message: Received, asked: Any, answer: Any, **more: Any) -> bool:
        async with self._lock(message):
            try:
                asking = asked(receipt=message.receipt, **_names(message), **more)
                await self._requests.ask(path, asking, answer, self._nodes.get(message))
            except ReceiptStale:
                return False
        return True

    async def extend(self, message: Received, lease_ms: int) -> bool:
        """Keep a message for this time from now; False: it is not the consumer's any more."""
        async with self._lock(message):
            asked = Extend(receipt=message.receipt, lease_ms=lease_ms, **_names(message))
            try:
                extended = await self._requests.ask(EXTEND_PATH, asked, Extended, self._nodes.get(message))
            except ReceiptStale:
                return False
            message.receipt = extended.receipt
        return True

    async def keep(self, message: Received, lease_ms: int) -> TwophaseError | None:
        """Extend a lease again and again, until this is cancelled or the message is lost.

        Returns the reason.
        """
        failure: TwophaseError | None = None
        while True:
            await asyncio.sleep(lease_ms / 1000 / _RENEWALS)
            # Shielded: a cut extension would leave a receipt that this consumer does not know.
            extending = asyncio.ensure_future(self.extend(message, lease_ms))
            try:
                if not await asyncio.shield(extending):
                    return failure or ReceiptStale()
            except asyncio.CancelledError:
                await asyncio.wait([extending])
                if not extending.cancelled():
                    extending.exception()
                raise
            except TwophaseError as error:
                failure = error  # the next one may get through in time

    def _lock(self, message: Received) -> asyncio.Lock:
        return self._locks.setdefault(message, asyncio.Lock())


def _names(message: Received) -> dict[str, str]:
    return {"group": message.group, "topic": message.topic, "namespace": message.namespace}
