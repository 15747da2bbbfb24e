"""The next steps of producers and their database: the SDK's flow, step by step.

The flow is that of correctness 1 to 4.

    prepare ─ acknowledged ─ begin, insert the row ─ work ─ verify ─ COMMIT ─ returned ─ submit
                  └ refused: end        └─────────── exception ──────────┘
                                                     roll back, ask the barrier
                             committed: submit · rolled back: abort · anything else: send nothing

A crash is the step to `ENDED` from anywhere; the database then ends the transaction by itself, at once or late.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from twophase.core.lifecycle import Event, State

from . import barrier, promises
from .barrier import Row, Transaction, Verdict
from .rules import Rules, Size
from .world import Doing, Fact, Moment, Post, Producer, prepare_acknowledged, prepare_refused

Steps = Iterator[tuple[str, Moment]]

_UNDECIDED = frozenset({State.ABSENT, State.PREPARED})


def move(world: Moment, attempt: int, doing: Doing, content: int | None = None) -> Moment:
    """Move the flow of `attempt` to `doing`."""
    before = world.producers
    known = before[attempt - 1].content if content is None else content
    return world.with_producers((*before[: attempt - 1], Producer(doing, known), *before[attempt:]))


def transact(world: Moment, attempt: int, transaction: Transaction) -> Moment:
    """Change the state of the transaction of `attempt`."""
    return world.with_barrier(barrier.become(world.barrier, attempt, transaction))


class Producers:
    """Every step of the attempts, the check-back route and the business database."""

    def __init__(self, rules: Rules, size: Size, post: Post) -> None:
        self._rules = rules
        self._size = size
        self._post = post
        self._each = range(1, size.attempts + 1)
        self._ask = functools.cache(lambda asked: barrier.ask(asked, rules))
        self._mistakes = tuple(
            steps
            for steps, is_right in (
                (self._commit_in_one_database, rules.barrier_commits_with_business),
                (self._commit_in_the_other_database, rules.business_commits_with_barrier),
                (self._spoil_a_check_back, rules.check_back_looks_last),
                (self._clean_behind_an_import, rules.imported_message_keeps_birth),
                (self._delete_by_an_old_id, rules.cleaner_names_row_by_key),
            )
            if not is_right
        )

    def steps(self, world: Moment) -> Steps:
        """Yield all that may happen next on the producers' side."""
        for attempt in self._each:
            doing = world.producers[attempt - 1].doing
            if doing is Doing.ENDED:
                continue
            yield from self._flow(world, attempt, doing)
            if doing is not Doing.START:
                yield f"attempt {attempt}: crashes", self._hears(world, attempt, Doing.ENDED)
        yield from self.database(world)
        if world.replies & Fact.CHECK_BACK_SENT:
            yield from self.check_back(world)
        if not self._rules.barrier_row_is_kept and world.barrier.row is not Row.NONE:
            yield (
                "cleaner: deletes the barrier row",
                world._replace(barrier=world.barrier._replace(row=Row.NONE, owner=0)),
            )
        if self._size.barrier_is_cleaned:
            yield from self.cleaner(world)
        for mistake in self._mistakes:
            yield from mistake(world)

    def send(self, world: Moment, event: Event, which: int = 0) -> Moment:
        """Add a letter to the network, for ever."""
        return world.with_letter(self._post.index(event, which))

    def _flow(self, world: Moment, attempt: int, doing: Doing) -> Steps:
        who = f"attempt {attempt}"
        if doing is Doing.START:
            after = Doing.PREPARING if self._rules.begins_after_prepare else Doing.BEGINNING
            yield f"{who}: sends prepare", self.send(move(world, attempt, after), Event.PREPARE, attempt)
        elif doing is Doing.PREPARING:
            if world.replies & prepare_acknowledged(attempt):
                yield f"{who}: prepare was acknowledged", self._hears(world, attempt, Doing.BEGINNING)
            if world.replies & prepare_refused(attempt):
                yield f"{who}: prepare was refused, ends", self._hears(world, attempt, Doing.ENDED)
        elif doing is Doing.BEGINNING:
            yield from self._begin(world, attempt, who)
        elif doing is Doing.WORKING:
            yield from self._work(world, attempt, who)
        elif doing is Doing.COMMITTING:
            yield from self._await_commit(world, attempt, who)
        elif doing is Doing.DOUBTING:
            yield from self._doubt(world, attempt, who)
        elif doing is Doing.SUBMITTING:
            content = world.producers[attempt - 1].content
            ended = move(world, attempt, Doing.ENDED, 0)
            yield f"{who}: sends submit", self.send(ended, Event.SUBMIT, content)
        elif doing is Doing.ABORTING:
            yield f"{who}: sends abort", self.send(move(world, attempt, Doing.ENDED, 0), Event.ABORT)

    def _hears(self, world: Moment, attempt: int, doing: Doing) -> Moment:
        """Let the flow continue or die; it no longer waits for a reply to prepare."""
        waited_for = prepare_acknowledged(attempt) | prepare_refused(attempt)
        return move(world, attempt, doing, 0)._replace(replies=world.replies & ~waited_for)

    def _begin(self, world: Moment, attempt: int, who: str) -> Steps:
        if world.barrier.late and self._rules.begins_within_deadline:
            yield f"{who}: begins too late after prepare, is refused", move(world, attempt, Doing.DOUBTING)
        elif barrier.is_locked(world.barrier):
            yield f"{who}: its insert of the barrier row times out", move(world, attempt, Doing.DOUBTING)
        elif world.barrier.row is Row.NONE:
            working = move(world, attempt, Doing.WORKING)
            yield f"{who}: begins, inserts the barrier row", transact(working, attempt, Transaction.OPEN)
        elif self._rules.refuses_existing_row:
            yield f"{who}: finds a barrier row, may not begin", move(world, attempt, Doing.DOUBTING)
        else:
            working = move(world, attempt, Doing.WORKING)
            yield f"{who}: begins despite the barrier row", transact(working, attempt, Transaction.REBORN)

    def _work(self, world: Moment, attempt: int, who: str) -> Steps:
        transaction = world.barrier.transactions[attempt - 1]
        yield f"{who}: its business raises", move(world, attempt, Doing.DOUBTING)
        if self._size.swallowed_errors and transaction is Transaction.OPEN:
            yield f"{who}: a statement fails, is swallowed", transact(world, attempt, Transaction.POISONED)
        if self._size.swallowed_deadlocks and transaction is Transaction.OPEN:
            yield f"{who}: a deadlock rolls back, it goes on", transact(world, attempt, Transaction.REBORN)
        if self._size.blocks_that_commit and transaction is Transaction.OPEN:
            committed = barrier.commit(
                barrier.become(world.barrier, attempt, Transaction.COMMITTING), attempt, self._rules
            )
            part = barrier.become(committed, attempt, Transaction.COMMITTED_PART)._replace(
                bare=self._size.open_messages
            )
            yield f"{who}: its block commits by itself, goes on", world.with_barrier(part)
        if not self._rules.submits_after_commit:
            world = self.send(world, Event.SUBMIT, attempt)
        sent = move(world, attempt, Doing.COMMITTING)
        checked = self._rules.verifies_before_commit and self._rules.refuses_existing_row
        if transaction is Transaction.OPEN:
            yield f"{who}: verifies its row, sends COMMIT", transact(sent, attempt, Transaction.COMMITTING)
            if not self._rules.looks_last:
                yield from self._spoil_behind_the_look(sent, attempt, who)
        elif checked or transaction is Transaction.GONE:
            yield f"{who}: its row is not there any more", move(world, attempt, Doing.DOUBTING)
        elif transaction is Transaction.REBORN:
            yield f"{who}: sends COMMIT unverified", transact(sent, attempt, Transaction.COMMITTING_BARE)
        elif transaction is Transaction.POISONED:
            yield f"{who}: sends COMMIT unverified", transact(sent, attempt, Transaction.SILENTLY_GONE)
        elif transaction is Transaction.COMMITTED_PART:
            yield f"{who}: sends COMMIT unverified", sent

    def _spoil_behind_the_look(self, sent: Moment, attempt: int, who: str) -> Steps:
        if self._size.swallowed_errors:
            label = f"{who}: verifies its row; a listener's statement fails, is swallowed; sends COMMIT"
            yield label, transact(sent, attempt, Transaction.SILENTLY_GONE)
        if self._size.swallowed_deadlocks:
            label = f"{who}: verifies its row; a deadlock in a listener rolls back, it goes on; sends COMMIT"
            yield label, transact(sent, attempt, Transaction.COMMITTING_BARE)

    def _await_commit(self, world: Moment, attempt: int, who: str) -> Steps:
        transaction = world.barrier.transactions[attempt - 1]
        yield f"{who}: COMMIT raises", move(world, attempt, Doing.DOUBTING)
        if transaction in barrier.COMMITTED or transaction is Transaction.SILENTLY_GONE:
            label = f"{who}: COMMIT returns"
            promises.check_return(transaction, label)
            yield label, move(world, attempt, Doing.SUBMITTING, attempt)

    def _doubt(self, world: Moment, attempt: int, who: str) -> Steps:
        if world.barrier.transactions[attempt - 1] in barrier.UNENDED:
            yield f"{who}: rolls back", transact(world, attempt, Transaction.GONE)
        if not self._rules.asks_after_exception:
            yield f"{who}: takes the exception for a rollback", move(world, attempt, Doing.ABORTING)
            return
        after, verdict = self._ask(world.barrier)
        asked = world.with_barrier(after)
        if verdict is Verdict.COMMITTED:
            content = after.owner if self._rules.submits_branches_of_row else attempt
            yield f"{who}: asks the barrier: committed", move(asked, attempt, Doing.SUBMITTING, content)
        elif verdict is Verdict.ROLLED_BACK:
            spoken = asked.with_fact(Fact.ROLLED_BACK_SPOKEN)
            yield f"{who}: asks the barrier: rolled back", move(spoken, attempt, Doing.ABORTING)
        elif self._rules.silent_when_undecided:
            yield f"{who}: asks the barrier: not decided, says nothing", move(asked, attempt, Doing.ENDED)
        else:
            yield f"{who}: asks the barrier: not decided, aborts anyway", move(asked, attempt, Doing.ABORTING)

    def cleaner(self, world: Moment) -> Steps:
        """Let time pass, and the cleaner delete rows of decided messages.

        The coordinators report which are decided.
        """
        known = world.barrier
        if not known.late:
            if world.stored.state is not State.ABSENT:
                yield "an hour passes: the begin deadline is over", world.with_barrier(known._replace(late=True))
            return
        if world.stored.state not in _UNDECIDED or not self._rules.cleaner_waits_for_decision:
            after = barrier.clean(known, self._rules)
            if after != known:
                yield "cleaner: deletes the barrier row, raises the horizon", world.with_barrier(after)
        if known.cleaned and not known.horizon and not self._rules.horizon_rises_with_deletes:
            yield "cleaner: raises the horizon, afterwards", world.with_barrier(known._replace(horizon=True))

    def database(self, world: Moment) -> Steps:
        """Let the database end transactions.

        COMMIT happens, and a lost connection's transaction is rolled back.
        """
        yield from self.endings(world)
        for attempt in self._each:
            if world.barrier.transactions[attempt - 1] in barrier.IN_COMMIT:
                yield f"database: rolls back attempt {attempt} at COMMIT", transact(world, attempt, Transaction.GONE)
        if not self._rules.barrier_commits_durably:
            yield "database: loses power, restarts", world.with_barrier(barrier.lose_power(world.barrier))

    def endings(self, world: Moment) -> Steps:
        """Yield the ends of transactions whose clients are gone."""
        for attempt in self._each:
            transaction = world.barrier.transactions[attempt - 1]
            if transaction in barrier.IN_COMMIT:
                committed = barrier.commit(world.barrier, attempt, self._rules)
                yield f"database: commits attempt {attempt}", world.with_barrier(committed)
            elif transaction in barrier.UNENDED:
                gone = transact(world, attempt, Transaction.GONE)
                yield f"database: loses the connection of attempt {attempt}, rolls back", gone

    def check_back(self, world: Moment) -> Steps:
        """Let a check-back that was sent once arrive, perhaps again.

        Its answer may arrive at any time later.
        """
        answered, index = self.answer(world)
        yield f"check-back route: {self._post.letters[index].name}", answered
        yield "check-back route: not reached", self.send(world, Event.CHECK_UNDECIDED)

    def answer(self, world: Moment) -> tuple[Moment, int]:
        """Let the check-back route ask the barrier and answer.

        Returns the index of the answer's letter, too.
        """
        after, verdict = self._ask(world.barrier)
        asked = world.with_barrier(after)
        if verdict is Verdict.COMMITTED:
            event, content = Event.CHECK_COMMITTED, after.owner
        elif verdict is Verdict.ROLLED_BACK:
            event, content = Event.CHECK_ROLLED_BACK, 0
            asked = asked.with_fact(Fact.ROLLED_BACK_SPOKEN)
        else:
            event, content = Event.CHECK_UNDECIDED, 0
        return self.send(asked, event, content), self._post.index(event, content)

    def _commit_in_one_database(self, world: Moment) -> Steps:
        for attempt in self._each:
            if world.barrier.transactions[attempt - 1] is Transaction.COMMITTING:
                half = barrier.become(barrier.commit(world.barrier, attempt, self._rules), attempt, Transaction.GONE)
                yield f"databases: the row of attempt {attempt} commits, its business fails", world.with_barrier(half)

    def _commit_in_the_other_database(self, world: Moment) -> Steps:
        for attempt in self._each:
            if world.barrier.transactions[attempt - 1] is Transaction.COMMITTING:
                half = transact(world, attempt, Transaction.COMMITTED_BARE)
                yield f"databases: the business of attempt {attempt} commits, its row fails", half

    def _spoil_a_check_back(self, world: Moment) -> Steps:
        after, verdict = self._ask(world.barrier)
        if world.replies & Fact.CHECK_BACK_SENT and verdict is Verdict.ROLLED_BACK and after != world.barrier:
            spoken = world.with_fact(Fact.ROLLED_BACK_SPOKEN)
            label = "check-back route: its row is rolled back unseen, it says 'rolled back'"
            yield label, self.send(spoken, Event.CHECK_ROLLED_BACK)

    def _clean_behind_an_import(self, world: Moment) -> Steps:
        """Let the cleaner assume that all messages are younger than the row.

        So the horizon, above the row, is below the birth.
        """
        if world.barrier.late and world.stored.state is State.PREPARED and world.barrier.row is not Row.NONE:
            after = barrier.clean(world.barrier, self._rules)._replace(horizon=False)
            yield "the message is taken over as born now; cleaner: deletes its row", world.with_barrier(after)

    def _delete_by_an_old_id(self, world: Moment) -> Steps:
        """Let two cleaners read an id, of which one deletes that row.

        This message's row gets the id, and the other cleaner continues.
        """
        if world.barrier.row is not Row.NONE:
            after = world.barrier._replace(row=Row.NONE, owner=0, cleaned=True)
            yield "cleaner: goes on after days, deletes by an id that is this row's now", world.with_barrier(after)
