"""The contract between a wire format for queues and the engine.

Nothing here knows a wire format. Times are milliseconds by the coordinator's clock. Errors are those of
`twophase.errors`; a wire gives each its own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from twophase.coordinator.dispatch.producers import Client, Question
from twophase.coordinator.state.active_message import Owner
from twophase.core.errors import TwophaseError
from twophase.core.queue_api import Decision
from twophase.core.queue_message import QueueMessage

__all__ = [
    "HTTP",
    "Client",
    "Decision",
    "Delivered",
    "GroupInfo",
    "NodeAddress",
    "Question",
    "QueueApi",
    "Sent",
    "Servers",
    "TopicInfo",
]


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic: the number of its queues, and the kinds of messages that it takes."""

    name: str
    namespace: str
    queues: int
    kinds: frozenset[str]


class GroupInfo(msgspec.Struct, frozen=True):
    """A group of consumers: the bound on deliveries, and the pauses between."""

    name: str
    namespace: str
    attempts_max: int
    backoff_ms: tuple[int, ...]

    def pause_ms(self, attempt: int) -> int:
        """Return the pause behind a delivery, counted from 1.

        >>> GroupInfo("billing", "", 17, (1_000, 5_000)).pause_ms(3)
        5000
        """
        return self.backoff_ms[min(max(attempt, 1), len(self.backoff_ms)) - 1]


class Sent(msgspec.Struct, frozen=True):
    """The place of a message that is durable in its queue.

    A delayed message has none yet: its `offset` is -1.
    """

    queue: int
    offset: int
    transaction_id: str


class Delivered(msgspec.Struct, frozen=True):
    """A message that a consumer has for some time.

    Arguments:
        handle: the receipt, opaque; it counts until the message is done or delivered again, also behind an `extend`,
            whose answer may be lost.
        attempt: deliveries of it to the group, this one included.
        stored_ms: when it was appended.
        invisible_ms: how long no other consumer gets it; 0: as long as the client is attached, `queue_hold_ms` at most.
    """

    message: QueueMessage
    queue: int
    offset: int
    handle: str
    attempt: int
    stored_ms: int
    invisible_ms: int
    transaction_id: str


HTTP: Final = "http"
"""The name of HTTP among the addresses of a node; the address is a URL."""


class NodeAddress(msgspec.Struct, frozen=True):
    """A node that takes messages, and serves the consumers of some topics.

    Arguments:
        node: its slot.
        addresses: `host:port`, or a URL for `HTTP`, by the name of a wire format.
        incarnation: another number after each start at these addresses.
        is_self: this node.
    """

    node: int
    addresses: Mapping[str, str]
    incarnation: int
    is_self: bool

    @property
    def is_named(self) -> bool:
        """True when others can name it to their clients: its addresses have hosts."""
        return all(not address.startswith(":") for address in self.addresses.values())


class Servers(msgspec.Struct, frozen=True):
    """The nodes of a topic: the owner, which serves its consumers, and the others.

    Each takes its messages.

    Arguments:
        owner: None where the store is not shared, and before this node knows any.
        others: without the owner.
    """

    owner: NodeAddress | None
    others: tuple[NodeAddress, ...] = ()


class QueueApi(Protocol):
    """Queues as a wire format uses them.

    Every method may raise `StoreError` and `Unavailable`.
    """

    async def topic(self, namespace: str, name: str, caller: Owner | None = None, peer: str = "") -> TopicInfo:
        """Return a topic, which is made on first use where the setting allows it.

        `peer`: the client's address, for the row that the audit log has of a topic that this makes.

        Raises:
            InvalidRequest: no such name.
            QueueNotFound: it does not exist, and is not made.
            TooManyTopics: there is no room for one more, or the caller has made its share of them.
        """
        ...

    async def group(self, namespace: str, name: str, caller: Owner | None = None, peer: str = "") -> GroupInfo:
        """Return a group of consumers, made on first use as a topic is. Raises as `topic`."""
        ...

    async def servers(self, namespace: str, topic: str) -> Servers:
        """Return the nodes of a topic."""
        ...

    async def announce(self, addresses: Mapping[str, str]) -> int | None:
        """Let other nodes name these addresses to clients; return the incarnation.

        Each has the name of its wire format. They are `host:port`, and a URL for `HTTP`. An empty host is that of a
        node which does not know its name; while it is not alone, consumers are refused. A store that is not shared has
        no other node, and no incarnation (`NodeAddress.incarnation`).
        """
        ...

    async def http_urls(self) -> list[str]:
        """Return the URLs of all nodes that live and have announced one.

        A store that is not shared has no such node.
        """
        ...

    async def send(
        self, messages: Sequence[QueueMessage], caller: Owner | None, peer: str = ""
    ) -> list[Sent | TwophaseError]:
        """Append messages; when this returns they are durable. `peer`: as of `topic`.

        The same (namespace, topic, message id) again appends nothing, and returns where the first one is.
        """
        ...

    async def half(
        self,
        message: QueueMessage,
        *,
        producers: str,
        client_id: str,
        check_after_ms: int | None,
        caller: Owner | None,
        peer: str = "",
    ) -> str:
        """Keep a message whose producer has yet to decide.

        Returns the transaction id, which is valid for ever and on every node.

        The same (namespace, topic, message id) again changes nothing.

        Arguments:
            producers: the name whose producers are asked when no decision comes.
            client_id: the producer that is asked first.
            check_after_ms: when it is asked first; None: the coordinator's default.
            peer: as of `topic`.

        Raises:
            InvalidRequest, QueueNotFound, WrongMessageKind, Overloaded: nothing was kept.
            ContentConflict: the id stands for another message, or for one of other producers.
        """
        ...

    async def end(
        self,
        transaction_id: str,
        decision: Decision,
        *,
        checked: bool,
        client_id: str,
        caller: Owner | None,
        topic: tuple[str, str] | None = None,
    ) -> None:
        """Decide about a half message; repeating it is safe.

        Arguments:
            checked: it answers a question. While that is open, UNKNOWN counts as a try; else it changes nothing.
            topic: namespace and topic of the message, which are compared; None for a caller that does not name them.

        Raises:
            ContraryDecision: the opposite was decided before.
            UnknownMessage: no such message.
        """
        ...

    async def receive(
        self,
        namespace: str,
        group: str,
        topic: str,
        *,
        expression: str,
        limit: int,
        invisible_ms: int,
        wait_ms: int,
        client_id: str,
        auto_renew: bool,
        bytes_max: int | None = None,
        caller: Owner | None = None,
        peer: str = "",
    ) -> list[Delivered]:
        """Take up to `limit` messages; wait `wait_ms` for the first.

        A message waits until those of its message group before it are done. A cancelled call takes none.

        Arguments:
            expression: `*`, or tags as `a || b`; what has another tag is done for this group.
            auto_renew: they are the client's as long as it is attached, `queue_hold_ms` at most. No `invisible_ms`.
            bytes_max: bodies behind the first message, beyond which no more are taken; None: no bound.
            peer: as of `topic`.

        Raises:
            InvalidRequest, QueueNotFound, TooManyTopics, QueuesUnavailable: nothing was taken.
            QueuesElsewhere: nothing was taken; another node serves the topic's consumers.
            StoreFenced, ShuttingDown: this node serves nothing now.
        """
        ...

    async def ack(self, namespace: str, group: str, topic: str, handle: str) -> None:
        """Take note that a message is done; when this returns that is durable.

        Raises:
            ReceiptStale: it was delivered again or done since, and what is done is durable; or nothing is known of
                this delivery (not `is_superseded`).
            ReceiptInvalid: nothing made this handle.
            QueuesElsewhere: another node serves the topic's consumers, and knows its receipts; nothing was changed.
        """
        ...

    async def extend(
        self, namespace: str, group: str, topic: str, handle: str, invisible_ms: int, *, rests: bool = False
    ) -> str:
        """Keep a message for `invisible_ms` from now; then it is delivered again.

        Returns the new receipt. The same request again, whose answer may have been lost, gets the same one, and its
        time begins anew. One by an earlier receipt than the newest shortens nothing.

        `rests`: it waits that time also after a restart, and at another node; when this returns that is durable.
        Otherwise others get it then at once.

        Raises as `ack`.
        """
        ...

    async def give_back(self, namespace: str, group: str, topic: str, handle: str) -> None:
        """Let others have a message at once that was not begun.

        The delivery does not count.

        Raises as `ack`.
        """
        ...

    async def dead_letter(self, namespace: str, group: str, topic: str, handle: str, reason: str = "") -> None:
        """Move a message into the group's dead letters, topic `%DLQ%group`.

        `reason`: for people; the letter's property `DLQ_REASON`.

        Raises as `ack`.
        """
        ...

    async def recall(self, namespace: str, topic: str, transaction_id: str, caller: Owner | None) -> None:
        """Take back a delayed message that is not in its queue yet; repeating it is safe.

        Raises:
            StateConflict: it is there already.
            UnknownMessage: no such message.
        """
        ...

    def attach(self, client: Client) -> Callable[[], None]:
        """Ask this client from now on.

        Returns its detach, by which others get what it had no longer than it was attached.
        """
        ...
