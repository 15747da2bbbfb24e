"""The error of a refused request, which names the message's state."""

from __future__ import annotations

from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.errors import (
    ContentConflict,
    ContraryDecision,
    ForgottenMessage,
    StateConflict,
    TwophaseError,
    UnknownMessage,
)
from twophase.core.lifecycle import TRANSITIONS, Action, Event, ReplyKind

VERBS: dict[Event, str] = {
    Event.PREPARE: "prepare",
    Event.PREPARE_OTHER: "prepare",
    Event.SUBMIT: "submit",
    Event.SUBMIT_OTHER: "submit",
    Event.ABORT: "abort",
    Event.FORCE_STOP: "force stop",
    Event.PARK: "park",
    Event.REDRIVE: "redrive",
    Event.HURRY: "retry",
    Event.REDIRECT: "redirect",
}


def of_another(active: ActiveMessage) -> TwophaseError:
    """Return the error for a message of another owner, which tells nothing about it."""
    return ContentConflict("the gid is taken.", gid=active.message.gid)


def of(active: ActiveMessage, event: Event, reply: ReplyKind) -> TwophaseError:
    """Return the error for a reply that is not OK."""
    gid = active.message.gid
    state = active.state.name.lower()
    verb = VERBS.get(event, event.name.lower())
    assert reply is not ReplyKind.OK, "an accepted request is no refusal"
    if reply is ReplyKind.NOT_FOUND:
        return UnknownMessage(f"no message {gid!r} found, cannot {verb}.", gid=gid)
    if reply is ReplyKind.CANNOT_TELL:
        return ForgottenMessage(gid=gid)
    if reply is ReplyKind.CONTENT_CONFLICT:
        other = "other branches or payloads"
        if event in {Event.PREPARE, Event.PREPARE_OTHER}:
            other += ", or with another check address,"
        return ContentConflict(f"current status '{state}', cannot {verb} {other} under the same gid.", gid=gid)
    if TRANSITIONS[active.state, event].action is Action.INCIDENT:
        return ContraryDecision(f"current status '{state}', cannot {verb}: the opposite was decided before.", gid=gid)
    return StateConflict(f"current status '{state}', cannot {verb}.", gid=gid)
