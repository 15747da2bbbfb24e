"""Plausible mistakes, each with the promise that it breaks.

A mistake is one cell of the lifecycle table or one rule of the protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from twophase.core.lifecycle import Action, Event, ReplyKind, State, Transition, transition

from .rules import Rules, Size

_TWO = Size(attempts=2, nodes=1, pauses=0)
_ONE = Size(attempts=1, nodes=1)
_SHARED = Size(attempts=1, nodes=2)


class Mutation(msgspec.Struct, frozen=True):
    """One mistake.

    `promise` is the first that the model sees broken, in a world that is big enough to show it.
    """

    name: str
    promise: str
    rules: Rules
    size: Size = _SHARED


_STORING = {
    State.PREPARED: Action.INSERT,
    State.SUBMITTED: Action.DECIDE_SUBMIT,
    State.SUCCEEDED: Action.FINISH,
    State.FAILED: Action.FINISH,
}


def every_wrong_next_state() -> Iterator[tuple[str, Rules]]:
    """Yield each cell of the table, led into each wrong stored state.

    These are some 250 mistakes.
    """
    for state, event, wrong in itertools.product(State, Event, _STORING):
        if wrong not in (state, transition(state, event).next_state):
            name = f"{event.name} on {state.name} leads to {wrong.name}"
            yield name, cell(state, event, wrong, _STORING[wrong])


def cell(
    state: State, event: Event, next_state: State, action: Action = Action.NOTHING, reply: ReplyKind = ReplyKind.OK
) -> Rules:
    """Return the protocol with one cell of the table changed."""
    changed = Transition(next_state, action, reply)

    def table(at: State, happened: Event) -> Transition:
        return changed if (at, happened) == (state, event) else transition(at, happened)

    return Rules(table=table)


_A, _P, _S, _D, _F = State.ABSENT, State.PREPARED, State.SUBMITTED, State.SUCCEEDED, State.FAILED
_STOP, _GO = Action.FINISH, Action.DECIDE_SUBMIT
_PURGED = Size(attempts=1, nodes=1, history_is_purged=True)
_OPERATED = Size(attempts=1, nodes=2, operator=True)
_FOREIGN = Size(attempts=1, nodes=1, contrary_words=True)

TABLE_MUTATIONS = (
    Mutation("prepare on a prepared message begins anew", "I7", cell(_P, Event.PREPARE, _P, Action.INSERT)),
    Mutation("prepare on a submitted message prepares it again", "I3", cell(_S, Event.PREPARE, _P, Action.INSERT)),
    Mutation("prepare on a succeeded message prepares it again", "I3", cell(_D, Event.PREPARE, _P, Action.INSERT)),
    Mutation("prepare on a failed message prepares it again", "I3", cell(_F, Event.PREPARE, _P, Action.INSERT)),
    Mutation("prepare submits at once", "I5", cell(State.ABSENT, Event.PREPARE, _S, Action.INSERT)),
    Mutation("prepare is acknowledged, not stored", "I8", cell(State.ABSENT, Event.PREPARE, State.ABSENT)),
    Mutation(
        "prepare gives a forgotten gid a second life",
        "I10",
        cell(State.FORGOTTEN, Event.PREPARE, _P, Action.INSERT),
        _PURGED,
    ),
    Mutation(
        "submit delivers a forgotten gid again",
        "I10",
        cell(State.FORGOTTEN, Event.SUBMIT, _S, Action.INSERT),
        _PURGED,
    ),
    Mutation("submit is acknowledged, not stored", "I8", cell(_P, Event.SUBMIT, _P)),
    Mutation("submit on a submitted message decides again", "I7", cell(_S, Event.SUBMIT, _S, _GO)),
    Mutation("submit on a submitted message is refused", "I7", cell(_S, Event.SUBMIT, _S, reply=ReplyKind.CONFLICT)),
    Mutation("submit on a succeeded message delivers again", "I3", cell(_D, Event.SUBMIT, _S, _GO)),
    Mutation("submit fails the message", "I5", cell(_P, Event.SUBMIT, _F, _STOP)),
    Mutation("abort is acknowledged, not stored", "I8", cell(_P, Event.ABORT, _P)),
    Mutation("abort submits", "I5", cell(_P, Event.ABORT, _S, _GO)),
    Mutation("abort on a failed message is refused", "I7", cell(_F, Event.ABORT, _F, reply=ReplyKind.CONFLICT)),
    Mutation("'committed' is ignored", "I2", cell(_P, Event.CHECK_COMMITTED, _P)),
    Mutation("'committed' ends the message without calls", "I2", cell(_P, Event.CHECK_COMMITTED, _D, _STOP)),
    Mutation("'committed' again decides again", "I7", cell(_S, Event.CHECK_COMMITTED, _S, _GO)),
    Mutation("'committed' on a succeeded message delivers again", "I3", cell(_D, Event.CHECK_COMMITTED, _S, _GO)),
    Mutation("'committed' fails the message", "I5", cell(_P, Event.CHECK_COMMITTED, _F, _STOP)),
    Mutation("'rolled back' is ignored", "I9", cell(_P, Event.CHECK_ROLLED_BACK, _P, Action.RESCHEDULE)),
    Mutation("'rolled back' submits", "I5", cell(_P, Event.CHECK_ROLLED_BACK, _S, _GO)),
    Mutation("'rolled back' on a failed message prepares it again", "I7", cell(_F, Event.CHECK_ROLLED_BACK, _P)),
    Mutation("no verdict fails a prepared message", "I5", cell(_P, Event.CHECK_UNDECIDED, _F, _STOP)),
    Mutation("no verdict submits a prepared message", "I5", cell(_P, Event.CHECK_UNDECIDED, _S, _GO)),
    Mutation("no verdict fails a submitted message", "I3", cell(_S, Event.CHECK_UNDECIDED, _F, _STOP)),
    Mutation("a branch that failed fails the message", "I3", cell(_S, Event.BRANCH_NOT_DONE, _F, _STOP)),
    Mutation("a branch that failed ends the message", "I2", cell(_S, Event.BRANCH_NOT_DONE, _D, _STOP)),
    Mutation("success is not noted", "I2", cell(_S, Event.ALL_SUCCEEDED, _S)),
    Mutation("success on a succeeded message delivers again", "I7", cell(_D, Event.ALL_SUCCEEDED, _S, _GO)),
    Mutation("redrive on a failed message submits it", "I3", cell(_F, Event.REDRIVE, _S, _GO), _OPERATED),
    Mutation("park fails a submitted message", "I3", cell(_S, Event.PARK, _F, _STOP), _OPERATED),
    Mutation("park fails a prepared message", "I5", cell(_P, Event.PARK, _F, _STOP), _OPERATED),
    Mutation("force stop fails a succeeded message", "I3", cell(_D, Event.FORCE_STOP, _F, _STOP), _OPERATED),
    Mutation("redrive does not unpark", "I2", cell(_S, Event.REDRIVE, _S), _OPERATED),
    Mutation("retry now submits a prepared message", "I5", cell(_P, Event.HURRY, _S, _GO), _OPERATED),
    Mutation("retry now fails a submitted message", "I3", cell(_S, Event.HURRY, _F, _STOP), _OPERATED),
    Mutation("retry now delivers a failed message", "I3", cell(_F, Event.HURRY, _S, _GO), _OPERATED),
    Mutation("redirect submits a prepared message", "I5", cell(_P, Event.REDIRECT, _S, _GO), _OPERATED),
    Mutation("redirect ends a submitted message", "I2", cell(_S, Event.REDIRECT, _D, _STOP), _OPERATED),
    # The second line of defence: twophase's SDK never contradicts a decision, but a foreign one may.
    Mutation("abort on a submitted message fails it", "I3", cell(_S, Event.ABORT, _F, _STOP), _FOREIGN),
    Mutation("abort on a submitted message passes in silence", "I3", cell(_S, Event.ABORT, _S), _FOREIGN),
    Mutation("other branches submit a prepared message", "I1", cell(_P, Event.SUBMIT_OTHER, _S, _GO), _FOREIGN),
    Mutation("other branches fail a prepared message", "I7", cell(_P, Event.PREPARE_OTHER, _F, _STOP), _FOREIGN),
    Mutation("a late branch result reopens a failed message", "I3", cell(_F, Event.BRANCH_NOT_DONE, _S, _GO), _FOREIGN),
    Mutation("a verdict makes a message nobody sent", "I1", cell(_A, Event.CHECK_COMMITTED, _S, _GO), _FOREIGN),
    Mutation("abort on a succeeded message fails it", "I3", cell(_D, Event.ABORT, _F, _STOP), _FOREIGN),
    Mutation("submit on a failed message submits it", "I3", cell(_F, Event.SUBMIT, _S, _GO), _FOREIGN),
    Mutation("submit on a failed message is acknowledged", "I8", cell(_F, Event.SUBMIT, _F, Action.INCIDENT), _FOREIGN),
    Mutation("'committed' on a failed message submits it", "I3", cell(_F, Event.CHECK_COMMITTED, _S, _GO), _FOREIGN),
    Mutation("'committed' on a failed message passes in silence", "I3", cell(_F, Event.CHECK_COMMITTED, _F), _FOREIGN),
    Mutation("'rolled back' on a submitted one fails it", "I3", cell(_S, Event.CHECK_ROLLED_BACK, _F, _STOP), _FOREIGN),
    Mutation("'rolled back' on a succeeded one fails it", "I3", cell(_D, Event.CHECK_ROLLED_BACK, _F, _STOP), _FOREIGN),
)

_CLEANED = Size(attempts=1, nodes=1, barrier_is_cleaned=True)
_PURGED_SHARED = Size(attempts=1, nodes=2, history_is_purged=True)
_UNVERIFIED = Rules(verifies_before_commit=False)
_SWALLOWS_ERRORS = Size(attempts=1, nodes=1, swallowed_errors=True)
_BLOCKS_COMMIT = Size(attempts=1, nodes=1, blocks_that_commit=True)
_OPEN = Size(attempts=1, nodes=1, blocks_that_commit=True, open_messages=True)
_SWALLOWS_DEADLOCKS = Size(attempts=1, nodes=1, swallowed_deadlocks=True)

RULE_MUTATIONS = (
    Mutation("begins before prepare was acknowledged", "I2", Rules(begins_after_prepare=False)),
    Mutation("begins despite a check-back's row", "I4", Rules(refuses_existing_row=False)),
    Mutation("trusts a commit that returned, PostgreSQL", "I1", _UNVERIFIED, _SWALLOWS_ERRORS),
    Mutation("trusts a commit that returned, MySQL", "I4", _UNVERIFIED, _SWALLOWS_DEADLOCKS),
    Mutation("a part that a block committed counts as whole", "I2", _UNVERIFIED, _BLOCKS_COMMIT),
    Mutation("a row without its branches is complete", "I2", Rules(row_without_branches_is_no_verdict=False), _OPEN),
    Mutation("what a block committed counts as rolled back", "I2", Rules(asks_after_exception=False), _BLOCKS_COMMIT),
    Mutation("a listener spoils what was seen, PostgreSQL", "I1", Rules(looks_last=False), _SWALLOWS_ERRORS),
    Mutation("a listener spoils what was seen, MySQL", "I4", Rules(looks_last=False), _SWALLOWS_DEADLOCKS),
    Mutation("of two databases the barrier's commits", "I1", Rules(barrier_commits_with_business=False), _ONE),
    Mutation("of two databases the other commits", "I4", Rules(business_commits_with_barrier=False), _ONE),
    Mutation("submits before the commit", "I1", Rules(submits_after_commit=False)),
    Mutation("takes an exception for a rollback, one attempt", "I2", Rules(asks_after_exception=False), _ONE),
    Mutation("takes an exception for a rollback, two attempts", "I2", Rules(asks_after_exception=False), _TWO),
    Mutation("aborts when nothing is decided", "I2", Rules(silent_when_undecided=False)),
    Mutation("submits its own branches for another's commit", "I1", Rules(submits_branches_of_row=False), _TWO),
    Mutation("check-back only reads", "I4", Rules(check_back_writes=False)),
    Mutation("a check-back speaks, its row is rolled back", "I4", Rules(check_back_looks_last=False), _ONE),
    Mutation("another table than the one written is asked", "I4", Rules(check_back_asks_written_table=False), _ONE),
    Mutation("an open transaction counts as none", "I4", Rules(held_lock_is_in_progress=False)),
    Mutation("a verdict is spoken before it is durable", "I4", Rules(barrier_commits_durably=False), _ONE),
    Mutation("a barrier row is deleted by age", "I4", Rules(barrier_row_is_kept=False)),
    Mutation("time fails a prepared message", "I5", Rules(time_decides=State.FAILED)),
    Mutation("time submits a prepared message", "I5", Rules(time_decides=State.SUBMITTED)),
    Mutation("no answer counts as committed", "I1", Rules(unknown_counts_as=Event.CHECK_COMMITTED)),
    Mutation("no answer counts as rolled back", "I2", Rules(unknown_counts_as=Event.CHECK_ROLLED_BACK)),
    Mutation("a check-back's added branches are left out", "I2", Rules(takes_branches_of_row=False), _ONE),
    Mutation("the last writer wins", "I3", Rules(compares_and_sets=False)),
    Mutation("a lost compare-and-set is written anyway", "I3", Rules(applies_table_again=False)),
    Mutation("acknowledges before the flush", "I8", Rules(flushes_before_reply=False)),
    Mutation("calls branches before the decision is durable", "I8", Rules(flushes_before_call=False)),
    Mutation("deletes an old prepared message", "I8", Rules(keeps_undecided_rows=False)),
    Mutation("a paused producer may still begin", "I10", Rules(begins_within_deadline=False), _CLEANED),
    Mutation("the cleaner goes by age alone", "I10", Rules(cleaner_waits_for_decision=False), _CLEANED),
    Mutation("the horizon rises after the deletes", "I10", Rules(horizon_rises_with_deletes=False), _CLEANED),
    Mutation("an imported message is born now", "I10", Rules(imported_message_keeps_birth=False), _CLEANED),
    Mutation("a cleaner deletes by an old id", "I10", Rules(cleaner_names_row_by_key=False), _CLEANED),
    Mutation("a delayed check-back ignores the horizon", "I10", Rules(check_back_heeds_horizon=False), _CLEANED),
    Mutation(
        "a flush does not look at the history horizon", "I10", Rules(flush_checks_history_horizon=False), _PURGED_SHARED
    ),
)
