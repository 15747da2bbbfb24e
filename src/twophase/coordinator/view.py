"""View of a message for queries."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from twophase.core.lifecycle import State
from twophase.core.message import Message, decode, encode
from twophase.stores.rows import Attempt, HistoryRow, LiveRow


class MessageView(msgspec.Struct, frozen=True):
    """A message as stored, with what went wrong on its way.

    Times in milliseconds since 1970. `done`: bit i is set when call i has succeeded (a call is a branch, or one
    subscriber of its topic: see `core.topic.expansion_of`). `finished_ms` and `due_ms`: None where they do not apply.
    """

    message: Message
    state: State
    created_ms: int
    decided_ms: int
    finished_ms: int | None
    due_ms: int | None
    decided_by: str
    reason: str
    attempts: int
    parked: bool
    done: int
    log: Sequence[Attempt]
    owner: str = ""


def listed(row: LiveRow | HistoryRow) -> MessageView:
    """Return the view of one row among many, without its log.

    A row that cannot be read is shown without branches.
    """
    try:
        return view_of(row, ())
    except (msgspec.DecodeError, msgspec.ValidationError):
        return view_of(msgspec.structs.replace(row, body=encode(Message(row.gid, ()))), ())


def view_of(row: LiveRow | HistoryRow, log: Sequence[Attempt]) -> MessageView:
    """Return the view of a stored row."""
    message = decode(row.body)
    if isinstance(row, HistoryRow):
        return MessageView(
            message,
            row.state,
            row.created_ms,
            row.decided_ms,
            row.finished_ms,
            None,
            row.decided_by,
            row.reason,
            row.attempts,
            parked=False,
            done=row.done,
            log=log,
            owner=row.owner,
        )
    return MessageView(
        message,
        row.state,
        row.created_ms,
        row.decided_ms,
        None,
        None if row.parked else row.due_ms,
        row.decided_by,
        "",
        row.attempts,
        parked=row.parked,
        done=row.done,
        log=log,
        owner=row.owner,
    )
