"""The requests of queues' clients over HTTP, and the answers.

A message is its address `queue://topic?id=…&tag=…` and its body in base64, as it is everywhere else
(`core.queue_message`). Times are milliseconds. A `client` is the client's own name for itself: its long polls end by
`leave`, and a producer is asked first about what it sent.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

PREFIX: Final = "/api/twophase/queues/"
RECEIVE_PATH: Final = f"{PREFIX}receive"
ACK_PATH: Final = f"{PREFIX}ack"
NACK_PATH: Final = f"{PREFIX}nack"
EXTEND_PATH: Final = f"{PREFIX}extend"
GIVE_BACK_PATH: Final = f"{PREFIX}give-back"
DEAD_LETTER_PATH: Final = f"{PREFIX}dead-letter"
HALF_PATH: Final = f"{PREFIX}half"
DECIDE_PATH: Final = f"{PREFIX}decide"
QUESTIONS_PATH: Final = f"{PREFIX}questions"
LEAVE_PATH: Final = f"{PREFIX}leave"

BATCH_MAX: Final = 32
"""Messages of one receive, and receipts of one acknowledgement."""
WAIT_MS: Final = 20_000
WAIT_MS_MAX: Final = 60_000
LEASE_MS_LEAST: Final = 1_000
LEASE_MS_MAX: Final = 12 * 3600 * 1000
PAUSE_MS_MAX: Final = 12 * 3600 * 1000
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bodies of one answer, where it has more than one message."""
REASON_CHARACTERS_MAX: Final = 500
CHECK_AFTER_MS_MAX: Final = 3600 * 1000

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Client = Annotated[str, Meta(pattern=r"^[!-~]{1,255}(?![\s\S])")]
"""Printable characters without spaces.

The last part of the pattern is the end of the text in every dialect of patterns.
"""
Receipt = Annotated[str, Meta(min_length=1, max_length=255)]
Namespace = Annotated[str, Meta(max_length=255)]
WaitMs = Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)]
LeaseMs = Annotated[int, Meta(ge=LEASE_MS_LEAST, le=LEASE_MS_MAX)]


class Decision(enum.Enum):
    """A producer's word about its local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class Receive(msgspec.Struct, kw_only=True):
    """Take messages; wait for the first.

    `tags`: `*`, or tags as `a || b`. `lease_ms`: the message lease, in which no other
    consumer gets them.
    """

    group: Name
    topic: Name
    client: Client
    namespace: Namespace = ""
    tags: Annotated[str, Meta(max_length=4096)] = "*"
    limit: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    lease_ms: LeaseMs = 60_000
    wait_ms: WaitMs = WAIT_MS


class OneDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message that the consumer has for `lease_ms`."""

    address: str
    body: bytes
    receipt: str
    attempt: int
    queue: int
    offset: int
    stored_ms: int
    lease_ms: int
    transaction_id: str


class Deliveries(msgspec.Struct, frozen=True):
    """The messages; none where none came in time."""

    messages: tuple[OneDelivery, ...] = ()


class Receipts(msgspec.Struct, kw_only=True):
    """Deliveries of one topic, by their receipts."""

    group: Name
    topic: Name
    receipts: Annotated[tuple[Receipt, ...], Meta(min_length=1, max_length=BATCH_MAX)]
    namespace: Namespace = ""


class OneReceipt(msgspec.Struct, frozen=True):
    """The outcome of one receipt; `code` is empty where it is done."""

    code: str = ""
    message: str = ""


class ReceiptResults(msgspec.Struct, frozen=True):
    """The outcomes, in the order of the request."""

    results: tuple[OneReceipt, ...]


class Extend(msgspec.Struct, kw_only=True):
    """Keep a message for `lease_ms` from now."""

    group: Name
    topic: Name
    receipt: Receipt
    lease_ms: LeaseMs
    namespace: Namespace = ""


class Extended(msgspec.Struct, frozen=True):
    """The receipt that counts from now on."""

    receipt: str


class Nack(msgspec.Struct, kw_only=True):
    """Have a message delivered again.

    `pause_ms`: the pause before; null: the group's, by `attempt`.
    """

    group: Name
    topic: Name
    receipt: Receipt
    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    pause_ms: Annotated[int, Meta(ge=0, le=PAUSE_MS_MAX)] | None = None
    namespace: Namespace = ""


class Nacked(msgspec.Struct, frozen=True):
    """The pause before the next delivery."""

    pause_ms: int


class GiveUp(msgspec.Struct, kw_only=True):
    """Move a message into the group's dead letters.

    `reason`: for people; the letter's property `DLQ_REASON`.
    """

    group: Name
    topic: Name
    receipt: Receipt
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] = ""
    namespace: Namespace = ""


class Leave(msgspec.Struct, kw_only=True):
    """Answer the long polls of a client now."""

    client: Client


class HalfMessage(msgspec.Struct, kw_only=True):
    """Keep a message whose producer decides later.

    `address` has an `id`, by which a repeated one is recognised. `group`: the producers that are asked when no
    decision comes. `check_after_ms`: when they are asked first; null: the server's default.
    """

    group: Name
    client: Client
    address: str
    body: bytes
    namespace: Namespace = ""
    check_after_ms: Annotated[int, Meta(ge=1, le=CHECK_AFTER_MS_MAX)] | None = None


class Kept(msgspec.Struct, frozen=True):
    """The name of a half message, valid for ever."""

    transaction_id: str


class Decide(msgspec.Struct, kw_only=True):
    """Decide about a half message; may be repeated.

    `checked`: it answers a question; then `unknown` counts as a try.
    """

    transaction_id: Annotated[str, Meta(min_length=1, max_length=128)]
    decision: Decision
    client: Client
    checked: bool = False


class Ask(msgspec.Struct, kw_only=True):
    """Wait for questions about half messages of a group."""

    group: Name
    client: Client
    namespace: Namespace = ""
    wait_ms: WaitMs = WAIT_MS


class OneQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A half message that needs a decision; `asked`: how often it was answered before."""

    address: str
    body: bytes
    transaction_id: str
    asked: int


class Questions(msgspec.Struct, frozen=True):
    """The questions; none where none came in time.

    `nodes`: the URLs of the nodes that ask questions of their own.
    """

    questions: tuple[OneQuestion, ...] = ()
    nodes: tuple[str, ...] = ()


class Noted(msgspec.Struct, frozen=True):
    """The request is carried out."""
