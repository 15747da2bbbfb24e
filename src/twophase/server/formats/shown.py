"""A message as `/api/twophase/messages` tells it, for the command line, dashboards and scripts.

No payload, header or secret is in it, only addresses and sizes. Times are milliseconds since 1970 by the store's clock;
what has no value is left out. The command line reads the same types.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from twophase.coordinator.messages.view import MessageView
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.topic import expansion_of
from twophase.server.formats.encode import WIRE_STATES

Earliest = Callable[[State, Message, int], int]
"""From (state, message, created_ms): before when nobody is asked or called."""


class ShownBranch(msgspec.Struct, omit_defaults=True, frozen=True):
    """One call of the message."""

    branch_id: str
    url: str = ""
    payload_bytes: int = 0
    done: bool = False


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
    """A message. `due_ms`: when it is tried next; `earliest_ms`: not before this, whatever anybody does.

    `attempts_max`: when so many rounds of branch calls have failed in a row it is parked; 0 for never.

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
    protocol: str = "http"
    check_back_durability: bool = False
    branches: list[ShownBranch] = []
    log: list[ShownAttempt] = []


class OneMessage(msgspec.Struct, frozen=True):
    """A message, and what time it is for the store."""

    message: ShownMessage
    now_ms: int


class ManyMessages(msgspec.Struct, frozen=True):
    """A page; `position` is where the next one begins, empty for the end. A page may be short, or even empty."""

    messages: list[ShownMessage]
    position: str
    now_ms: int


class Acted(msgspec.Struct, frozen=True):
    """An operator's act is done: where the message stands now."""

    gid: str
    state: str


def shown(view: MessageView, earliest: Earliest, attempts_max: int = 0) -> ShownMessage:
    """The message of a view. `attempts_max`: the coordinator's, for one that names none."""
    message = view.message
    live = view.state in (State.PREPARED, State.SUBMITTED)
    return ShownMessage(
        gid=message.gid,
        state=WIRE_STATES[view.state],
        created_ms=view.created_ms,
        parked=view.parked,
        decided_ms=view.decided_ms,
        decided_by=view.decided_by,
        finished_ms=view.finished_ms or 0,
        reason=view.reason,
        due_ms=view.due_ms or 0,
        earliest_ms=earliest(view.state, message, view.created_ms) if live else 0,
        attempts=view.attempts,
        attempts_max=(message.options.attempts_max or attempts_max) if live else 0,
        check_url=message.check_url,
        protocol=message.protocol,
        check_back_durability=bool(message.options.durability),
        branches=_branches(view),
        log=[
            ShownAttempt(
                one.at_ms, one.kind, one.branch_id, one.target, one.status, one.latency_ms, one.result, one.error
            )
            for one in view.log
        ],
    )


def _branches(view: MessageView) -> list[ShownBranch]:
    message = view.message
    expansion = expansion_of(message.branches)
    calls = message.branches if expansion is None else expansion.branches
    ids = [message.branch_id(index) for index in range(len(calls))] if expansion is None else expansion.ids
    return [
        ShownBranch(branch_id, call.url, len(call.payload), bool(view.done >> index & 1))
        for index, (branch_id, call) in enumerate(zip(ids, calls, strict=True))
    ]
