"""The promises as checks over the model's states and steps.

Their numbers are those of docs/explanation/promises.md; each breach names its promise.
"""

from __future__ import annotations

from twophase.core.lifecycle import FINAL, Action, Event, State

from . import barrier
from .barrier import Transaction
from .rules import Rules
from .world import Fact, Moment, Stored

_WORDS: dict[Event, State] = {
    Event.SUBMIT: State.SUBMITTED,
    Event.SUBMIT_OTHER: State.SUBMITTED,
    Event.CHECK_COMMITTED: State.SUBMITTED,
    Event.ABORT: State.FAILED,
    Event.CHECK_ROLLED_BACK: State.FAILED,
    Event.FORCE_STOP: State.FAILED,
}
"""The event that leads to each decision: the producer's, barrier's or operator's.

No other event decides (I5).
"""

_DECIDING = frozenset({Action.INSERT, Action.DECIDE_SUBMIT, Action.FINISH})
_CONTRARY: dict[State, frozenset[Event]] = {
    State.SUBMITTED: frozenset({Event.ABORT, Event.CHECK_ROLLED_BACK}),
    State.SUCCEEDED: frozenset({Event.ABORT, Event.CHECK_ROLLED_BACK}),
    State.FAILED: frozenset({Event.SUBMIT, Event.SUBMIT_OTHER, Event.CHECK_COMMITTED}),
}
_OTHER = frozenset({Event.PREPARE_OTHER, Event.SUBMIT_OTHER})
_SENT = _OTHER | {Event.PREPARE, Event.SUBMIT}
_SUBMITTED = frozenset({State.SUBMITTED, State.SUCCEEDED, State.FORGOTTEN})
_ANSWERED = frozenset({Event.PREPARE, Event.SUBMIT, Event.ABORT})


class BrokenPromise(AssertionError):
    """A promise that does not hold.

    `promise` is its number there, `how` describes what happened, `step` in which step.
    """

    def __init__(self, promise: str, how: str, step: str = "") -> None:
        self.promise = promise
        self.how = how
        self.step = step
        self.aftermath: tuple[str, ...] = ()
        """The steps of a healthy system after the faults, when the promise broke there."""
        super().__init__(f"{promise}: {how}")


def check_state(world: Moment) -> None:
    """Check the promises that every state must keep.

    Raises:
        BrokenPromise: I2, I4 or I8 does not hold.
    """
    state, facts = world.stored.state, world.replies
    forced = facts & Fact.FORCED
    if barrier.is_committed(world.barrier):
        if facts & Fact.ROLLED_BACK_SPOKEN:
            how = "'rolled back' was answered for a transaction that is committed"
            raise BrokenPromise("I10" if world.barrier.cleaned else "I4", how)
        if state == State.FAILED and not forced:
            raise BrokenPromise("I2", "the local transaction is committed and its message is failed")
        if state == State.ABSENT:
            raise BrokenPromise("I2", "the local transaction is committed and no coordinator holds its message")
    if facts & Fact.SUBMIT_ACKNOWLEDGED and not forced and state not in _SUBMITTED:
        raise BrokenPromise("I8", f"submit was acknowledged, the store says {state.name}")
    if facts & Fact.ABORT_ACKNOWLEDGED and state not in (State.FAILED, State.FORGOTTEN):
        raise BrokenPromise("I8", f"abort was acknowledged, the store says {state.name}")
    if facts & Fact.PREPARE_ACKNOWLEDGED and state == State.ABSENT:
        raise BrokenPromise("I8", "prepare was acknowledged, the store holds no message")


def check_return(transaction: Transaction, step: str) -> None:
    """Check that success is returned only for a transaction that is whole.

    Raises:
        BrokenPromise: I2.
    """
    if transaction is Transaction.COMMITTED_PART:
        how = "a part is committed and said to be whole; branches that were added later stand in no row"
        raise BrokenPromise("I2", how, step)


def check_call(world: Moment, called: Stored, step: str) -> None:
    """Check the promises when branches are called.

    Raises:
        BrokenPromise: I1; I2 when some are left out; I8 when the decision is not durable yet.
    """
    if world.is_ours and not barrier.is_committed(world.barrier):
        raise BrokenPromise("I1", "a branch is called, and no local transaction committed", step)
    if world.barrier.owner and not called.content:
        how = f"the branches that attempt {world.barrier.owner} added are not among those that are called"
        raise BrokenPromise("I2", how, step)
    if world.barrier.bare:
        how = f"the row of attempt {world.barrier.owner} lacks the branches that it added, and others are called"
        raise BrokenPromise("I2", how, step)
    if world.barrier.owner and called.content != world.barrier.owner:
        raise BrokenPromise(
            "I1",
            f"branches of attempt {called.content} are called, attempt {world.barrier.owner} committed",
            step,
        )
    if world.stored.state in (State.ABSENT, State.PREPARED):
        raise BrokenPromise("I8", "a branch is called before the decision is durable", step)


def check_write(world: Moment, after: Stored, event: Event, step: str) -> None:
    """Check the promises when a row of the store changes.

    Raises:
        BrokenPromise: I1, I2, I3, I5 or I10 does not hold.
    """
    before = world.stored
    if before.state == State.FORGOTTEN and after.state != State.FORGOTTEN:
        raise BrokenPromise("I10", f"a forgotten gid has a second life as {after.state.name}", step)
    if after.state == before.state and after.content == before.content:
        return
    if before.state in FINAL:
        raise BrokenPromise("I3", f"{before.state.name}, which is final, became {after.state.name}", step)
    if before.state == State.ABSENT and event not in _SENT:
        raise BrokenPromise("I1", f"{event.name} made a message that nobody sent", step)
    if before.state != State.ABSENT and event in _OTHER:
        raise BrokenPromise("I1", f"{event.name} changed a message whose branches are others", step)
    if before.state == State.SUBMITTED and after.state != State.SUCCEEDED and event != Event.FORCE_STOP:
        raise BrokenPromise("I3", f"a decision to submit became {after.state.name}", step)
    if after.state in (State.SUBMITTED, State.FAILED) and _WORDS.get(event) != after.state:
        raise BrokenPromise("I5", f"{event.name} led to {after.state.name}, and nobody had said so", step)
    if after.state == State.SUCCEEDED and (before.state != State.SUBMITTED or event != Event.ALL_SUCCEEDED):
        raise BrokenPromise("I2", f"{event.name} ended the message, and its branches had not all succeeded", step)


def check_incident(world: Moment, state: State, event: Event, action: Action, step: str) -> None:
    """Check that the contrary of a decision is recorded.

    twophase's SDK never reports a contrary, unless an operator overrode.

    Raises:
        BrokenPromise: I3.
    """
    if event in _CONTRARY.get(state, ()) and action != Action.INCIDENT:
        raise BrokenPromise("I3", f"{event.name} contradicts {state.name}, and nobody records it", step)
    if action == Action.INCIDENT and not world.replies & Fact.FORCED and world.is_ours:
        raise BrokenPromise("I3", f"{event.name} contradicts {state.name}", step)


def check_repetition(rules: Rules, state: State, event: Event, step: str) -> None:
    """Check that an event that comes again at once changes nothing.

    It has the same answer.

    Raises:
        BrokenPromise: I7.
    """
    first = rules.table(state, event)
    again = rules.table(first.next_state, event)
    if again.next_state != first.next_state or again.action in _DECIDING:
        raise BrokenPromise(
            "I7",
            f"{event.name} in {state.name} leads to {first.next_state.name}, again to {again.next_state.name}",
            step,
        )
    if event in _ANSWERED and again.reply != first.reply:
        raise BrokenPromise(
            "I7", f"{event.name} in {state.name} is answered {first.reply.name}, again {again.reply.name}", step
        )
