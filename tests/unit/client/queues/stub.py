"""A coordinator in memory, which answers consumers and producers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from twophase.client.queues.following import Nodes
from twophase.core.errors import CoordinatorUnreachable
from twophase.core.queue_api import LEAVE_PATH, OneDelivery, OneReceipt, ReceiptResults


class StubRequests:
    """Stands for `QueueRequests`.

    `polled` gets the request of each poll, and returns its answer, or None to wait until the client leaves.
    """

    client_id = "me"
    nodes = Nodes("http://own")

    def __init__(self, polled: Callable[[str, Any], Any]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {}
        self._polled = polled
        self._left = asyncio.Event()

    async def poll(self, path: str, request: Any, answer: Any, wait_ms: int, at: str | None = None) -> Any:
        await asyncio.sleep(0)
        self.asked.append((path, request))
        if path == LEAVE_PATH:
            self._left.set()
        found = self._polled(path, request)
        if found is None:
            await self._left.wait()
            return answer()
        return _said(await found if asyncio.iscoroutine(found) else found)

    async def ask(self, path: str, request: Any, answer: Any, at: str | None = None) -> Any:
        await asyncio.sleep(0)
        self.asked.append((path, request))
        if path in self.answers:
            return _said(self.answers[path])
        if answer is ReceiptResults:
            return ReceiptResults((OneReceipt(),))
        return answer("new") if answer.__struct_fields__ else answer()

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def paths(self) -> list[str]:
        """Return the last parts of the paths that were asked."""
        return [path.rpartition("/")[2] for path, _ in self.asked]


def _said(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def delivery(number: int, body: bytes = b"1") -> OneDelivery:
    """Return a message as the wire has it."""
    return OneDelivery(
        address=f"queue://orders?id={number}",
        body=body,
        receipt=f"receipt-{number}",
        attempt=1,
        queue=0,
        offset=number,
        stored_ms=1,
        lease_ms=60_000,
        transaction_id=f"gid-{number}",
    )


AWAY = CoordinatorUnreachable("away")
