"""Requests of operators and their answers, under `/api/twophase/messages`.

Plain values that travel as JSON, known to the server's API and to the command line, which needs nothing of the
server's. No header or secret is in them, only addresses and sizes; payloads only where they are asked for. Times are
milliseconds since 1970 by the store's clock; what has no value is left out.
"""

from __future__ import annotations

import msgspec


class ActRequest(msgspec.Struct):
    """The body of an act: who acts, and why."""

    by: str = ""
    reason: str = ""


class StopRequest(ActRequest):
    """The body of a stop.

    `override`: stop a prepared message although its producer, asked first, gives no verdict. `prepared_only`: refuse
    the stop of a message that is submitted by now: the operator has seen it prepared.
    """

    override: bool = False
    prepared_only: bool = False


class Redirecting(ActRequest):
    """The body of a redirect, see `core.redirect.Redirection`.

    `dry_run`: only report what would change.
    """

    to: str = ""
    branch: str = ""
    beginning: str = msgspec.field(default="", name="from")
    check: bool = False
    dry_run: bool = False


class ShownMove(msgspec.Struct, frozen=True):
    """One address replaced; a check-back is branch 00."""

    branch_id: str
    before: str = msgspec.field(name="from")
    after: str = msgspec.field(name="to")


class Redirected(msgspec.Struct, frozen=True):
    """The changes that a redirect made, or would make.

    No `moves`: the message goes there already.
    """

    gid: str
    state: str
    moves: list[ShownMove]


class ShownBranch(msgspec.Struct, omit_defaults=True, frozen=True):
    """One call of the message.

    `sent_to` is the producer's address, where an operator gave another one. `payload` is there when it is asked for;
    `payload_base64` instead where it is no text.
    """

    branch_id: str
    url: str = ""
    payload_bytes: int = 0
    done: bool = False
    sent_to: str = ""
    payload: str = ""
    payload_base64: str = ""


class ShownAttempt(msgspec.Struct, omit_defaults=True, frozen=True):
    """Something that went wrong, or that an operator did."""

    at_ms: int
    kind: str
    branch_id: str = ""
    target: str = ""
    status: int = 0
    latency_ms: int = 0
    result: str = ""
    error: str = ""


class ShownMessage(msgspec.Struct, omit_defaults=True, frozen=True):
    """A message, as an operator sees it.

    `due_ms` is the time of the next try; `earliest_ms` is a time that no request can bring forward.
    `attempts_max` is the number of consecutive failed rounds before it is parked; 0 for never.

    `prepared_check_url` is the producer's check address, where an operator gave another one.
    `log` is there when one message is asked for, the newest 100, oldest first.
    """

    gid: str
    state: str
    created_ms: int
    parked: bool = False
    decided_ms: int = 0
    decided_by: str = ""
    finished_ms: int = 0
    reason: str = ""
    due_ms: int = 0
    earliest_ms: int = 0
    attempts: int = 0
    attempts_max: int = 0
    check_url: str = ""
    prepared_check_url: str = ""
    protocol: str = "http"
    check_back_durability: bool = False
    branches: list[ShownBranch] = []
    log: list[ShownAttempt] = []


class OneMessage(msgspec.Struct, frozen=True):
    """A message, and what time it is for the store."""

    message: ShownMessage
    now_ms: int


class ManyMessages(msgspec.Struct, frozen=True):
    """A page of messages.

    `position` is where the next one begins, empty for the end. A page may be short, or even empty.
    """

    messages: list[ShownMessage]
    position: str
    now_ms: int


class Acted(msgspec.Struct, frozen=True):
    """An operator's act is done: where the message stands now."""

    gid: str
    state: str


class ShownNode(msgspec.Struct, frozen=True):
    """A node slot of the store, with the time at which its process was last seen."""

    node: int
    held: bool
    seen_ms: int
    answers: bool = False
    """It is the node that answers this request."""


class ShownDestination(msgspec.Struct, frozen=True):
    """Branch calls of the node that answers, to one destination."""

    address: str
    in_progress: int
    waiting: int


class ShownConsumers(msgspec.Struct, frozen=True):
    """Messages of a topic that a group has not done, at the node that answers.

    `in_progress`: those with consumers, or resting. `behind`: those that wait behind others of their message group.
    """

    group: str
    topic: str
    lag: int
    in_progress: int
    behind: int


class ServerStatus(msgspec.Struct, frozen=True):
    """A server, and the messages of its store that are not final.

    There is no value where there is no such message.

    `lease_ms`: a node that is silent for longer loses its messages to the others; 0 where the store has one node.
    `prepared` and `submitted` count parked messages, too. `destinations` are those of the node
    that answers which it calls, or would call, at this moment; the busiest first.
    """

    version: str
    ready: bool
    now_ms: int
    lease_ms: int
    prepared: int
    submitted: int
    parked: int
    oldest_prepared_ms: int | None
    oldest_submitted_ms: int | None
    nodes: list[ShownNode]
    destinations: list[ShownDestination]
    queues: list[ShownConsumers] = []
    """The groups that this node serves, those with the most to do first."""
    halves: int = 0
    """Half messages of this node that are due and have no answer."""
