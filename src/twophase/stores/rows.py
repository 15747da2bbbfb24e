"""The rows of a store: live messages, history, attempts, topics and nodes."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from twophase.core.lifecycle import State

NODES_SHOWN_MAX: Final = 1_000
OWNERS_COUNTED_MAX: Final = 10_000


class DecidedBy(enum.StrEnum):
    """The actor that decided a message's fate."""

    SUBMIT = "submit"
    CHECK_BACK = "check-back"
    ABORT = "abort"
    OPERATOR = "operator"


class Secrets(msgspec.Struct, frozen=True):
    """The secret by which a process holds its node slot of a shared store.

    Arguments:
        own: no other process has it.
        former: of processes that are known to have ended, and whose messages this one continues.
    """

    own: str
    former: tuple[str, ...] = ()


class LiveRow(msgspec.Struct, frozen=True):
    """A message that is not final, as stored.

    `version` is 1 for a new row and grows by one with every change.
    `owner`: the name of its producer's token, empty for none.
    `owned`: this node drives the row; another node's row is driven by its owner, unless a request comes here.
    `due_ms`: when the coordinator must next act by itself (check-back, first call, retry); `done`: bit i is set when
    call i has succeeded (a branch, or one subscriber of its topic); `attempts`: rounds that failed since the last
    decision, progress or redrive.
    """

    gid: str
    state: State
    version: int
    due_ms: int
    created_ms: int
    decided_ms: int
    decided_by: str
    attempts: int
    parked: bool
    done: int
    body: bytes
    owned: bool = True
    owner: str = ""


class HistoryRow(msgspec.Struct, frozen=True):
    """A final message.

    (`node`, `seq`) grows in commit order: a reader follows it without gaps or repeats.
    """

    node: int
    seq: int
    gid: str
    state: State
    created_ms: int
    decided_ms: int
    finished_ms: int
    decided_by: str
    reason: str
    attempts: int
    done: int
    body: bytes
    owner: str = ""


class AttemptKind(enum.StrEnum):
    """The kind of an attempt row: a failure, or an operator's act."""

    BRANCH = "branch"
    CHECK_BACK = "check-back"
    INCIDENT = "incident"
    OPERATOR = "operator"


class Attempt(msgspec.Struct, frozen=True):
    """One failed call, contrary decision or operator's act; append-only.

    `at_ms` is the coordinator's time, which follows the store's clock where nodes share it.
    """

    gid: str
    kind: AttemptKind
    branch_id: str
    target: str
    at_ms: int
    status: int
    latency_ms: int
    result: str
    error: str


class Subscriber(msgspec.Struct, frozen=True):
    """An address that a topic's messages go to; `remark` is for people."""

    url: str
    remark: str = ""


class Topic(msgspec.Struct, frozen=True):
    """The subscribers of `topic://name`, in the order of their calls.

    `version` counts its changes; `id` is never used again.
    """

    name: str
    id: int
    version: int
    created_ms: int
    changed_ms: int
    subscribers: tuple[Subscriber, ...]


class Topics(msgspec.Struct, frozen=True):
    """All topics by name, as of one moment.

    `revision` grows by one with every change of any of them.
    """

    revision: int
    by_name: dict[str, Topic]


class NodeSeen(msgspec.Struct, frozen=True):
    """A node slot: whether a process holds it, and when the process was last seen.

    The time is the store's clock. `served_at`: as the node announced it.
    """

    node: int
    epoch: int
    held: bool
    seen_ms: int
    served_at: str = ""
