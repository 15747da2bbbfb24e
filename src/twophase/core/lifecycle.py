"""The lifecycle of a message, as one table.

The running coordinator, the model check and the docs look it up.

`TRANSITIONS[(state, event)]` says what an event does to a message in a state: the next state, the action that
makes it so, and the reply. The table is total: every pair has an entry, so nothing is decided by omission.
It holds I1, I3, I5 and I7: only `SUBMIT` and `CHECK_COMMITTED` lead to SUBMITTED; no entry leads from
SUBMITTED to FAILED but the operator's force stop (correctness rule 24); no event is the passing of time; and
repeating an event in the state it led to changes nothing.

The caller classifies before it asks: content compared (`PREPARE` or `PREPARE_OTHER`), gid older than history
(`FORGOTTEN` instead of `ABSENT`), verdict interpreted (`core.verdict`).
"""

from __future__ import annotations

import enum

import msgspec


class State(enum.IntEnum):
    """The state of a message.

    The first two are never stored: there is no such message.

    >>> print(State.SUBMITTED)
    submitted
    """

    ABSENT = 0
    FORGOTTEN = 1
    PREPARED = 2
    SUBMITTED = 3
    SUCCEEDED = 4
    FAILED = 5

    def __str__(self) -> str:
        """Return the word for it; the number is what is stored."""
        return self.name.lower()


FINAL: frozenset[State] = frozenset({State.SUCCEEDED, State.FAILED})
STORED: frozenset[State] = frozenset({State.PREPARED, State.SUBMITTED, State.SUCCEEDED, State.FAILED})


class Event(enum.IntEnum):
    """An event of a message's lifecycle."""

    PREPARE = 0
    PREPARE_OTHER = 1
    SUBMIT = 2
    SUBMIT_OTHER = 3
    ABORT = 4
    CHECK_COMMITTED = 5
    CHECK_ROLLED_BACK = 6
    CHECK_UNDECIDED = 7
    ALL_SUCCEEDED = 8
    BRANCH_NOT_DONE = 9
    FORCE_STOP = 10
    PARK = 11
    REDRIVE = 12
    HURRY = 13
    REDIRECT = 14


class Action(enum.IntEnum):
    """The action of the coordinator for a transition.

    Every storing action is durable before the reply.
    """

    NOTHING = 0
    INSERT = 1
    """Store a new message in the next state."""
    DECIDE_SUBMIT = 2
    """Store the decision, then call the branches."""
    FINISH = 3
    """Move the message into history with its final state."""
    RESCHEDULE = 4
    """Ask or call again later."""
    PARK = 5
    REDRIVE = 6
    CHECK_BACK_FIRST = 7
    """Ask the producer; without a verdict only the operator's override counts."""
    RECORD = 8
    """Record what arrived; it changes nothing."""
    INCIDENT = 9
    """Record a contrary decision and alert: it breaks a promise someone else made."""
    HURRY = 10
    """Ask or call again now."""
    REDIRECT = 11
    """Store another address for open calls, or for the check-back, and try there."""


class ReplyKind(enum.IntEnum):
    """The kind of reply that the requester gets."""

    OK = 0
    CONFLICT = 1
    CONTENT_CONFLICT = 2
    NOT_FOUND = 3
    CANNOT_TELL = 4


class Transition(msgspec.Struct, frozen=True):
    """One entry of the table."""

    next_state: State
    action: Action
    reply: ReplyKind


_A, _G, _P, _S, _D, _F = State.ABSENT, State.FORGOTTEN, State.PREPARED, State.SUBMITTED, State.SUCCEEDED, State.FAILED
_E, _DO, _R = Event, Action, ReplyKind


def _stay(state: State, action: Action = Action.NOTHING, reply: ReplyKind = ReplyKind.OK) -> Transition:
    return Transition(state, action, reply)


def _row(event: Event, **cells: Transition) -> dict[tuple[State, Event], Transition]:
    return {(State[name.upper()], event): cell for name, cell in cells.items()}


TRANSITIONS: dict[tuple[State, Event], Transition] = {
    **_row(
        _E.PREPARE,
        absent=Transition(_P, _DO.INSERT, _R.OK),
        forgotten=_stay(_G, reply=_R.CANNOT_TELL),
        prepared=_stay(_P),
        submitted=_stay(_S, reply=_R.CONFLICT),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F, reply=_R.CONFLICT),
    ),
    **_row(
        _E.PREPARE_OTHER,
        absent=Transition(_P, _DO.INSERT, _R.OK),
        forgotten=_stay(_G, reply=_R.CANNOT_TELL),
        prepared=_stay(_P, reply=_R.CONTENT_CONFLICT),
        submitted=_stay(_S, reply=_R.CONFLICT),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F, reply=_R.CONFLICT),
    ),
    **_row(
        _E.SUBMIT,
        absent=Transition(_S, _DO.INSERT, _R.OK),
        forgotten=_stay(_G, reply=_R.CANNOT_TELL),
        prepared=Transition(_S, _DO.DECIDE_SUBMIT, _R.OK),
        submitted=_stay(_S),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F, _DO.INCIDENT, _R.CONFLICT),
    ),
    **_row(
        _E.SUBMIT_OTHER,
        absent=Transition(_S, _DO.INSERT, _R.OK),
        forgotten=_stay(_G, reply=_R.CANNOT_TELL),
        prepared=_stay(_P, reply=_R.CONTENT_CONFLICT),
        submitted=_stay(_S, reply=_R.CONTENT_CONFLICT),
        succeeded=_stay(_D, reply=_R.CONTENT_CONFLICT),
        failed=_stay(_F, _DO.INCIDENT, _R.CONFLICT),
    ),
    **_row(
        _E.ABORT,
        absent=_stay(_A, reply=_R.NOT_FOUND),
        forgotten=_stay(_G, reply=_R.NOT_FOUND),
        prepared=Transition(_F, _DO.FINISH, _R.OK),
        submitted=_stay(_S, _DO.INCIDENT, _R.CONFLICT),
        succeeded=_stay(_D, _DO.INCIDENT, _R.CONFLICT),
        failed=_stay(_F),
    ),
    **_row(
        _E.CHECK_COMMITTED,
        absent=_stay(_A),
        forgotten=_stay(_G),
        prepared=Transition(_S, _DO.DECIDE_SUBMIT, _R.OK),
        submitted=_stay(_S),
        succeeded=_stay(_D),
        failed=_stay(_F, _DO.INCIDENT),
    ),
    **_row(
        _E.CHECK_ROLLED_BACK,
        absent=_stay(_A),
        forgotten=_stay(_G),
        prepared=Transition(_F, _DO.FINISH, _R.OK),
        submitted=_stay(_S, _DO.INCIDENT),
        succeeded=_stay(_D, _DO.INCIDENT),
        failed=_stay(_F),
    ),
    **_row(
        _E.CHECK_UNDECIDED,
        absent=_stay(_A),
        forgotten=_stay(_G),
        prepared=_stay(_P, _DO.RESCHEDULE),
        submitted=_stay(_S),
        succeeded=_stay(_D),
        failed=_stay(_F),
    ),
    **_row(
        _E.ALL_SUCCEEDED,
        absent=_stay(_A),
        forgotten=_stay(_G),
        prepared=_stay(_P, _DO.INCIDENT),
        submitted=Transition(_D, _DO.FINISH, _R.OK),
        succeeded=_stay(_D),
        failed=_stay(_F, _DO.RECORD),
    ),
    **_row(
        _E.BRANCH_NOT_DONE,
        absent=_stay(_A),
        forgotten=_stay(_G),
        prepared=_stay(_P, _DO.INCIDENT),
        submitted=_stay(_S, _DO.RESCHEDULE),
        succeeded=_stay(_D, _DO.RECORD),
        failed=_stay(_F, _DO.RECORD),
    ),
    **_row(
        _E.FORCE_STOP,
        absent=_stay(_A, reply=_R.NOT_FOUND),
        forgotten=_stay(_G, reply=_R.NOT_FOUND),
        prepared=Transition(_F, _DO.CHECK_BACK_FIRST, _R.OK),
        submitted=Transition(_F, _DO.FINISH, _R.OK),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F),
    ),
    **_row(
        _E.PARK,
        absent=_stay(_A, reply=_R.NOT_FOUND),
        forgotten=_stay(_G, reply=_R.NOT_FOUND),
        prepared=_stay(_P, _DO.PARK),
        submitted=_stay(_S, _DO.PARK),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F, reply=_R.CONFLICT),
    ),
    **_row(
        _E.REDRIVE,
        absent=_stay(_A, reply=_R.NOT_FOUND),
        forgotten=_stay(_G, reply=_R.NOT_FOUND),
        prepared=_stay(_P, _DO.REDRIVE),
        submitted=_stay(_S, _DO.REDRIVE),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F, reply=_R.CONFLICT),
    ),
    **_row(
        _E.HURRY,
        absent=_stay(_A, reply=_R.NOT_FOUND),
        forgotten=_stay(_G, reply=_R.NOT_FOUND),
        prepared=_stay(_P, _DO.HURRY),
        submitted=_stay(_S, _DO.HURRY),
        succeeded=_stay(_D),
        failed=_stay(_F),
    ),
    **_row(
        _E.REDIRECT,
        absent=_stay(_A, reply=_R.NOT_FOUND),
        forgotten=_stay(_G, reply=_R.NOT_FOUND),
        prepared=_stay(_P, _DO.REDIRECT),
        submitted=_stay(_S, _DO.REDIRECT),
        succeeded=_stay(_D, reply=_R.CONFLICT),
        failed=_stay(_F, reply=_R.CONFLICT),
    ),
}

assert len(TRANSITIONS) == len(State) * len(Event), "the lifecycle table is total"


def transition(state: State, event: Event) -> Transition:
    """Return what `event` does to a message in `state`.

    >>> transition(State.PREPARED, Event.SUBMIT).next_state
    <State.SUBMITTED: 3>
    >>> transition(State.SUBMITTED, Event.ABORT).reply
    <ReplyKind.CONFLICT: 1>
    """
    return TRANSITIONS[state, event]
