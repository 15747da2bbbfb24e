"""What requesters are told, and when: each exactly once, and nothing good before it is durable (I8)."""

from __future__ import annotations

from typing import Final

from twophase.coordinator.observer import Observer
from twophase.coordinator.state import refusal
from twophase.coordinator.state.active_message import Entry, Occurrence, ReplyOf, tell
from twophase.core.errors import NotYetDelivered
from twophase.core.lifecycle import Event, Reply, State
from twophase.core.verdict import BranchResult

# Names of this module: see `decisions`.
_OK: Final = Reply.OK
_SUBMIT: Final = Event.SUBMIT


class Replies:
    """Answers requesters, at once or, with wait_result, when a delivery round has ended."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def answer(self, entry: Entry, occurrence: Occurrence, reply: Reply) -> None:
        """Tell whoever asked for this occurrence what came of it; one who waits for a result waits on."""
        on_reply = occurrence.on_reply
        if on_reply is None:
            return
        if reply is _OK:
            said = occurrence.said
            if said is not None and said.options.wait_result and occurrence.event is _SUBMIT:
                if entry.waiters is None:
                    entry.waiters = []
                entry.waiters.append(on_reply)
                return
            tell(on_reply, ReplyOf(None, entry.state, entry.created_ms))
            return
        error = refusal.of(entry, occurrence.event, reply)
        self._observer.refused(error.code)
        tell(on_reply, ReplyOf(error, entry.state, entry.created_ms))

    def refuse(self, occurrence: Occurrence, reply: ReplyOf) -> None:
        """Tell whoever asked for this occurrence that nothing came of it."""
        if reply.error is not None:
            self._observer.refused(reply.error.code)
        if occurrence.on_reply is not None:
            tell(occurrence.on_reply, reply)

    def release(self, entry: Entry) -> None:
        """Answer wait_result as soon as there is no delivery round to wait for."""
        if entry.state is State.SUCCEEDED:
            self.answer_waiters(entry, ReplyOf(None, entry.state, entry.created_ms))
        elif entry.state is State.FAILED:
            self.answer_waiters(entry, ReplyOf(refusal.of(entry, _SUBMIT, Reply.CONFLICT), entry.state))
        elif entry.round is None and not entry.busy:
            error = NotYetDelivered("the branches are called later.")
            self.answer_waiters(entry, ReplyOf(error, entry.state, entry.created_ms, BranchResult.ONGOING))

    def answer_waiters(self, entry: Entry, reply: ReplyOf) -> None:
        """Tell everybody who submitted with wait_result."""
        waiters, entry.waiters = entry.waiters, None
        for on_reply in waiters or ():
            tell(on_reply, reply)
