"""The messages of RocketMQ's interface as plain values.

Times are milliseconds. A field that the interface cannot leave out is empty or zero where it was not sent.
"""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """A topic or a group."""

    name: str
    namespace: str = ""


class Endpoints(msgspec.Struct, frozen=True):
    """Addresses of a server, as a client dials them."""

    scheme: int = 0
    addresses: tuple[tuple[str, int], ...] = ()
    """Host and port of each."""


class Digest(msgspec.Struct, frozen=True):
    """The checksum that a client gave for a body."""

    kind: int
    checksum: str


class WireMessage(msgspec.Struct, frozen=True):
    """A message as a client sends it, or as it is delivered."""

    topic: Resource
    message_id: str
    body: bytes
    kind: int = 0
    encoding: int = 0
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    message_group: str | None = None
    deliver_at_ms: int | None = None
    born_ms: int = 0
    born_host: str = ""
    trace_context: str = ""
    check_after_ms: int | None = None
    """Time to the first check-back of a half message."""
    digest: Digest | None = None


class Delivery(msgspec.Struct, frozen=True):
    """The part of a delivered message that is not its content."""

    handle: str
    attempt: int
    queue: int
    offset: int
    stored_ms: int
    invisible_ms: int


class RouteRequest(msgspec.Struct, frozen=True):
    """`QueryRouteRequest`, and `QueryAssignmentRequest`, which has a group."""

    topic: Resource
    endpoints: Endpoints
    group: Resource | None = None


class EndRequest(msgspec.Struct, frozen=True):
    """`EndTransactionRequest`."""

    topic: Resource
    message_id: str
    transaction_id: str
    resolution: int
    source: int


class RecallRequest(msgspec.Struct, frozen=True):
    """`RecallMessageRequest`."""

    topic: Resource
    handle: str


class ReceiveRequest(msgspec.Struct, frozen=True):
    """`ReceiveMessageRequest`."""

    group: Resource
    topic: Resource
    filter_kind: int
    expression: str
    limit: int
    invisible_ms: int | None
    auto_renew: bool
    wait_ms: int | None


class Receipt(msgspec.Struct, frozen=True):
    """One entry of an `AckMessageRequest`."""

    message_id: str
    handle: str


class AckRequest(msgspec.Struct, frozen=True):
    """`AckMessageRequest`."""

    group: Resource
    topic: Resource
    receipts: tuple[Receipt, ...]


class ExtendRequest(msgspec.Struct, frozen=True):
    """`ChangeInvisibleDurationRequest`."""

    group: Resource
    topic: Resource
    handle: str
    invisible_ms: int


class DeadLetterRequest(msgspec.Struct, frozen=True):
    """`ForwardMessageToDeadLetterQueueRequest`."""

    group: Resource
    topic: Resource
    handle: str


class HeartbeatRequest(msgspec.Struct, frozen=True):
    """`HeartbeatRequest`."""

    client_type: int
    group: Resource | None = None


class ClientSettings(msgspec.Struct, frozen=True):
    """`Settings` as a client sends them.

    `raw` is the message itself; the answer is made from it.
    """

    raw: bytes
    client_type: int
    topics: tuple[Resource, ...] = ()
    """The topics of a producer, or those that a consumer subscribes to."""
    group: Resource | None = None
    publishes: bool = False
    subscribes: bool = False
    properties: tuple[tuple[str, str], ...] = ()


class ServerSettings(msgspec.Struct, frozen=True):
    """The server's part of the settings of a client."""

    body_bytes_max: int
    send_attempts: int
    backoff_first_ms: int
    backoff_cap_ms: int
    consume_attempts: int
    redelivery_ms: tuple[int, ...]
    """Pauses before the second, the third and every further delivery."""
    batch: int
    wait_ms: int
    fifo: bool = False


class Status(msgspec.Struct, frozen=True):
    """A status code and its text."""

    code: int
    message: str = "OK"


class Queue(msgspec.Struct, frozen=True):
    """`MessageQueue` of a route.

    `broker`: the name of its node. `permission`: what clients may do with it.
    """

    topic: Resource
    number: int
    endpoints: Endpoints
    kinds: tuple[int, ...]
    broker: str
    permission: int


class SendResult(msgspec.Struct, frozen=True):
    """`SendResultEntry`."""

    status: Status
    message_id: str
    transaction_id: str = ""
    offset: int = 0
    recall_handle: str = ""
