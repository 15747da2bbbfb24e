"""An operator stops a prepared message: its producer is asked first, because the local transaction may have committed.

Keeps rule 24. A verdict is what happened, and wins over the operator: committed, and the message is submitted and the
stop refused; rolled back, and the check-back has failed it. Only without a verdict does the operator's word count, and
is recorded as his. When the producer could not even be asked, nothing is decided. Meanwhile others may decide: the stop
of a prepared message never ends one that has been submitted since.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from twophase.coordinator.dispatch.check_back import DECIDING, CheckBack
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import Entry, Occurrence, OnReply, ReplyOf, tell
from twophase.coordinator.state.machine import Decisions
from twophase.core.errors import Overloaded
from twophase.core.lifecycle import FINAL, Event, State
from twophase.core.message import Message
from twophase.core.verdict import Verdict
from twophase.stores.base import DecidedBy

_PLACE_WAIT_S: Final = 1.0
"""Beyond the call's own timeout: how long a question may wait for its place among others."""


class Stopping:
    """Asks producers on behalf of an operator who stops their messages."""

    def __init__(self, check_back: CheckBack, decisions: Decisions, settings: CoordinatorSettings) -> None:
        self._check_back = check_back
        self._decisions = decisions
        self._settings = settings

    def begin(self, entry: Entry, on_reply: OnReply, reason: str) -> None:
        """Stop a prepared message, and tell `on_reply` once what became of it.

        A reply without error says by its state what that was: FAILED, or another where the stop came too late.
        """
        assert entry.state is State.PREPARED, "only a prepared message has a producer to ask"
        stop = _Stop(self._decisions, entry, on_reply, reason)
        if not entry.message.check_url:
            stop.end(Verdict.UNKNOWN, None, "it has no check-back address")
            return
        timeout_ms = entry.message.options.request_timeout_ms or self._settings.request_timeout_ms
        loop = asyncio.get_running_loop()
        stop.deadline = loop.call_later(timeout_ms / 1000 + _PLACE_WAIT_S, stop.give_up)
        if not self._check_back.ask_for(entry, stop.take):
            stop.give_up()


class _Stop(msgspec.Struct, eq=False):
    """One stop from its question to its reply; the message stays in memory meanwhile."""

    decisions: Decisions
    entry: Entry
    on_reply: OnReply
    reason: str
    deadline: asyncio.TimerHandle | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        self.entry.calls += 1

    def take(self, verdict: Verdict, said: Message | None) -> None:
        """The producer has answered, or the call has failed."""
        self.end(verdict, said, f"the producer, asked first, answered {verdict.value}")

    def give_up(self) -> None:
        """The question found no place in time: the producer was not asked, so nobody's word counts yet."""
        if self._release():
            entry = self.entry
            error = Overloaded("its producer could not be asked now; nothing was stopped.", gid=entry.message.gid)
            decided = entry.state is not State.PREPARED
            tell(self.on_reply, ReplyOf(None if decided else error, entry.state, entry.created_ms))

    def end(self, verdict: Verdict, said: Message | None, why: str) -> None:
        """Go on with what is known now."""
        if not self._release():
            return
        entry = self.entry
        if entry.detached:
            error = None if entry.state in FINAL else Overloaded("the store has failed.", gid=entry.message.gid)
            tell(self.on_reply, ReplyOf(error, entry.state, entry.created_ms))
            return
        event = DECIDING.get(verdict)
        if event is not None:
            verdict_told = f"the producer answered {verdict.value}"
            occurrence = Occurrence(event, said, self.on_reply, DecidedBy.CHECK_BACK, verdict_told)
        else:
            reason = f"{self.reason}; {why}"
            occurrence = Occurrence(Event.FORCE_STOP, None, self.on_reply, DecidedBy.OPERATOR, reason, asked=True)
        self.decisions.happen(entry, occurrence)

    def _release(self) -> bool:
        if self.ended:
            return False
        self.ended = True
        self.entry.calls -= 1
        if self.deadline is not None:
            self.deadline.cancel()
        return True
