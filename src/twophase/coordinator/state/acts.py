"""Operators' acts: each that succeeds leaves a row in the audit log.

Promise: the row is in the commit of the change that the act makes. An act that succeeds without a change has a
commit of its own, before its reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from twophase.coordinator.state.active_message import ActiveMessage, Audited, OnReply, Reply, Trigger, answers
from twophase.core.audit_log import AuditEntry
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Complete, Decide, DecideEarly, Finish, Insert, Item, Park


class Counting(Protocol):
    """The part of the group commit that looks for acts only while there are some."""

    acts: int


class Acts:
    """Performs acts of operators, and writes their rows.

    Arguments:
        store: has the audit log.
        group_commit: writes the rows of acts that change a message.
    """

    def __init__(self, store: Store, group_commit: Counting) -> None:
        self._store = store
        self._group_commit = group_commit

    async def perform(self, entry: AuditEntry, begin: Callable[[OnReply, Audited], None]) -> Reply:
        """Begin an act, and return its reply.

        Arguments:
            entry: the act, without the states.
            begin: starts it; the reply must come once.

        Raises:
            StoreError: the act changed nothing, and its row could not be written.
        """
        audited = Audited(entry)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        answer = answers(future)

        def on_reply(reply: Reply) -> None:
            self._group_commit.acts -= 1
            answer(reply)

        self._group_commit.acts += 1
        begin(on_reply, audited)
        reply = await future
        if reply.error is None and not audited.written:
            state = _name(reply.state)
            await self._store.append_audit([msgspec.structs.replace(entry, before=state, after=state)])
        return reply


def entries_of(items: Sequence[Item], about: Sequence[tuple[ActiveMessage, Trigger]]) -> dict[int, AuditEntry]:
    """Return the acts behind the changes of a flush, by the change's index."""
    return {
        index: _described(trigger.audited.entry, active, trigger, items[index])
        for index, (active, trigger) in enumerate(about)
        if trigger.audited is not None
    }


def _described(entry: AuditEntry, active: ActiveMessage, trigger: Trigger, item: Item) -> AuditEntry:
    """Return an act with the state before it and the state after it.

    The store compares the former: it refuses a change of another version.
    """
    before = _state(active.state, parked=active.parked)
    match item:
        case Finish() | Insert():
            after = _state(item.state, parked=False)
        case Complete():
            after = _state(State.SUCCEEDED, parked=False)
        case Decide() | DecideEarly():
            after = _state(State.SUBMITTED, parked=False)
        case Park():
            after = _state(active.state, parked=item.parked)
        case _:
            after = before
    moves = trigger.moves
    if moves:
        before = "; ".join([before, *(f"{move.branch_id or 'check'} {move.before}" for move in moves)])
        after = "; ".join([after, *(f"{move.branch_id or 'check'} {move.after}" for move in moves)])
    return msgspec.structs.replace(entry, before=before, after=after)


def _state(state: State, *, parked: bool) -> str:
    return f"{_name(state)}, parked" if parked else _name(state)


def _name(state: State) -> str:
    return "" if state is State.ABSENT else state.name.lower()
