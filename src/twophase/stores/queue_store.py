"""The duties of an engine for queues; part of the store protocol.

Entries are written by `flush` alone (`Batch.appends`). A queue's numbers are given in the flush, in commit order. (gid,
branch) is in one entry only. A history row stays while an entry has its gid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twophase.stores.queue_rows import Definition, Entry, Place, Progress


class QueueStore(Protocol):
    """Queues of one engine. Every method may raise `StoreError`."""

    async def queue_definitions(self) -> Sequence[Definition]:
        """Return all topics of queues, and all groups."""
        ...

    async def define_queue(self, wanted: Definition) -> Definition:
        """Make a topic or a group durable, unless it exists.

        Returns the one that stands.
        """
        ...

    async def queue_page(self, topic: str, queue: int, least: int, limit: int) -> Sequence[Entry]:
        """Return entries from the number `least` on, in their order.

        Fewer than `limit` are the last ones, unless their bodies are `PAGE_BYTES_MAX` together. Served by an index.
        """
        ...

    async def queue_entries(self, topic: str, queue: int, numbers: Sequence[int]) -> Sequence[Entry]:
        """Return the entries with these numbers; those that were cleaned are left out."""
        ...

    async def queue_ends(self, topic: str) -> dict[int, int]:
        """Return the next number of each queue of a topic that has had an entry."""
        ...

    async def queue_place(self, gid: str, branch: int) -> Place | None:
        """Return where a message's branch is; None when it is in no queue."""
        ...

    async def queue_progress(self, group: str, topic: str) -> Sequence[Progress]:
        """Return a group's progress in each queue of a topic that it has read."""
        ...

    async def purge_queues(self, before_ms: int, limit: int) -> int:
        """Remove at most `limit` older entries of each queue; return how many.

        An entry stays until every group that reads its queue has done it, and while an archive needs its history.
        """
        ...
