"""A message as `/api/twophase/messages` tells it (`core.operating`)."""

from __future__ import annotations

from collections.abc import Callable

from twophase.coordinator.messages.view import MessageView
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.operating import ShownAttempt, ShownBranch, ShownMessage
from twophase.core.topic import expansion_of
from twophase.server.formats.encode import WIRE_STATES

Earliest = Callable[[State, Message, int], int]
"""From (state, message, created_ms): before when nobody is asked or called."""


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
