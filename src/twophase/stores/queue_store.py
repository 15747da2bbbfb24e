"""The duties of an engine for queues; part of the store protocol.

Entries are written by `flush` alone (`Batch.appends`). A queue's numbers are given in the flush, in commit order. (gid,
branch) is in one entry only. A history row stays while an entry has its gid.

On a shared store the consumers of a topic are served by one node, its owner. A term is the time that one process owns a
topic without a break, and its number grows. Progress names the term, and a flush refuses that of any other than the
present one, in the transaction that would write it: so no former owner undoes what the present one has written. A term
ends when its node gives the topic up, when the node's epoch ends, or when the node leaves its slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from twophase.stores.queue_rows import Definition, Entry, Place, Progress, Reader, Span, Weights

if TYPE_CHECKING:
    from twophase.core.audit_log import AuditEntry


class QueueStore(Protocol):
    """Queues of one engine. Every method may raise `StoreError`."""

    async def queue_definitions(self) -> Sequence[Definition]:
        """Return all topics of queues, and all groups."""
        ...

    async def define_queue(self, wanted: Definition, entry: AuditEntry) -> Definition:
        """Make a topic or a group durable, unless it exists.

        Returns the one that stands. Where this makes it, the act's row of the audit log is written in the same commit.
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

    async def queue_ends_of(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Return the next number of each queue of these topics, by topic and queue."""
        ...

    async def own_topic(self, topic: str) -> int | None:
        """Take the consumers of a topic; return the term, None while another node owns it.

        The caller reads progress afterwards: what the owner before has written is there by then, and it writes no more.
        A store that is not shared has one node, and one term, 0.

        Raises:
            StoreFenced: this node has lost its slot.
        """
        ...

    async def give_up_topic(self, topic: str, term: int) -> None:
        """End a term of this node's. Another term is not touched."""
        ...

    async def announce(self, served_at: str) -> None:
        """Let the other nodes see the addresses of this one, in `NodeSeen.served_at`.

        It lasts until this node loses its slot.
        The store does not read them, and one that is not shared does not keep them.

        Raises:
            StoreFenced: this node has lost its slot.
        """
        ...

    async def wake(self, topics: Sequence[str]) -> None:
        """Wake the other nodes: there are new entries of these topics.

        It may get lost; so they look from time to time, too.
        """
        ...

    async def pass_on(self, known: Sequence[tuple[str, int]], node: int) -> None:
        """Give prepared messages of this node to another node that lives.

        Arguments:
            known: their gids and versions.
            node: the other node.

        A message that has moved or changed since stays where it is. The other node finds them as it finds what is
        overdue. A store that is not shared has no other node.
        """
        ...

    def on_wake(self, woken: Callable[[str], None]) -> None:
        """Call this with a topic when another node has new entries for it; before `start`."""
        ...

    async def queue_place(self, gid: str, branch: int) -> Place | None:
        """Return where a message's branch is; None when it is in no queue."""
        ...

    async def queue_progress(self, group: str, topic: str) -> Sequence[Progress]:
        """Return a group's progress in each queue of a topic that it has read."""
        ...

    async def queue_spans(self, topic: str = "") -> Sequence[Span]:
        """Return the extent of each queue of a topic that has had an entry.

        An empty name stands for all topics.
        """
        ...

    async def queue_first(self, topic: str, queue: int, least: int) -> tuple[int, int] | None:
        """Return number and `stored_ms` of the first entry from the number `least` on.

        None without such an entry. Served by an index.
        """
        ...

    async def queue_weights(self, topic: str, places: Sequence[tuple[int, int]]) -> Weights:
        """Return the bytes of some entries of a topic; their bodies are not read.

        Those that were cleaned are left out. Served by indexes.

        Arguments:
            topic: its name.
            places: (queue, number) of each.
        """
        ...

    async def queue_readers(self, topic: str = "", group: str = "") -> Sequence[Reader]:
        """Return where groups stand; an empty name stands for all. There are few."""
        ...

    async def change_queue(self, known: Definition | None, wanted: Definition | None, entry: AuditEntry) -> bool:
        """Replace a definition.

        The act's row of the audit log is written in the same commit. `known` None makes a new definition. `wanted` None
        removes one, and with it the progress of the group, or of all groups in the topic. At least one of them is
        given. False, and nothing is changed, when another definition than `known` stands.
        """
        ...

    async def reset_queues(self, progress: Sequence[Progress], entry: AuditEntry) -> bool:
        """Write the progress of groups, and the act's row in the audit log, in one commit.

        False, and nothing is changed, when one of the topics has another term by now.
        """
        ...

    async def empty_queue(self, topic: str, queue: int, before: int, limit: int) -> int:
        """Remove at most `limit` entries of a queue, done or not; return how many.

        Those with numbers below `before` go, the oldest first. The numbers of the queue continue, so no number is ever
        given twice. The time is raised before which entries may be gone, as by `purge_queues`.
        """
        ...

    async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Mapping[str, int] | None = None) -> int:
        """Remove at most `limit` older entries of each queue; return how many.

        An entry stays until every group that reads its topic has done it, and while an archive needs its history.
        `own_before_ms`: the bound of each topic that has one of its own.
        """
        ...
