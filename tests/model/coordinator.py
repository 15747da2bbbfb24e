"""The next steps of coordinators: receive a letter, flush, ask, call, crash.

Every decision is the lifecycle table's. A node decides on what it *believes* is stored. The change waits in memory,
where a crash loses it, until a flush writes it by compare-and-set; a node that loses takes the stored row and applies
the table again (rule 21).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Set

from twophase.core.lifecycle import FINAL, Action, Event, ReplyKind, State

from . import barrier, promises
from .barrier import Verdict
from .rules import Rules, Size
from .world import (
    DOWN,
    NEW,
    Doing,
    Fact,
    Letter,
    Moment,
    Node,
    Post,
    Stored,
    prepare_acknowledged,
    prepare_refused,
)

Steps = Iterator[tuple[str, Moment]]

_STORING = frozenset({Action.INSERT, Action.DECIDE_SUBMIT, Action.FINISH, Action.CHECK_BACK_FIRST})
_PAUSING = frozenset({Action.RESCHEDULE, Action.PARK, Action.REDRIVE, Action.HURRY, Action.REDIRECT})
_OPERATOR = frozenset({Event.FORCE_STOP, Event.PARK, Event.REDRIVE, Event.HURRY, Event.REDIRECT})


_NAMES = {state: f"coordinator that knows {state.name}" for state in State}


def _who(known: Stored) -> str:
    return _NAMES[known.state]


def _indexes(letters: int) -> tuple[int, ...]:
    return tuple(index for index in range(letters.bit_length()) if letters >> index & 1)


class Nodes:
    """Every step of every coordinator and of the store they share."""

    def __init__(self, rules: Rules, size: Size, post: Post) -> None:
        self._rules = rules
        self._size = size
        self._post = post
        self._repeatable: set[tuple[State, Event]] = set()
        self._indexes = functools.cache(_indexes)
        self._not_done = self._set_of({Event.BRANCH_NOT_DONE})
        self._mail = self._set_of(set(Event) - _OPERATOR) & ~self._not_done
        self._early_mail = self._mail & ~self._set_of({Event.ALL_SUCCEEDED})
        self._operators = self._set_of(_OPERATOR) if size.operator else 0

    def steps(self, world: Moment) -> Steps:
        """Yield all that may happen next on the coordinators' side.

        Two nodes in the same condition are one case.
        """
        seen: set[Node] = set()
        for place, node in enumerate(world.nodes):
            if node in seen:
                continue
            seen.add(node)
            yield from self._node(world, place, node)
        stored = world.stored
        if self._size.history_is_purged and stored.state in FINAL:
            yield "store: forgets the message", world._replace(stored=stored._replace(state=State.FORGOTTEN))
        if not self._rules.keeps_undecided_rows and stored.state is State.PREPARED:
            yield "store: deletes the old prepared row", world._replace(stored=NEW)

    def _node(self, world: Moment, place: int, node: Node) -> Steps:
        if node.known is None:
            yield from self.load(world, place)
            return
        yield f"{_who(node.known)}: crashes", self._become(world, place, DOWN)
        if node.pending >= 0:
            yield from self.flush(world, place)
            return
        for index in self._arriving(world, node.known):
            yield from self.receive(world, place, index)
        if node.known.state is State.PREPARED and not node.known.parked:
            if not world.replies & Fact.CHECK_BACK_SENT:
                yield f"{_who(node.known)}: sends a check-back", self.ask(world)
            if self._rules.time_decides is not None:
                planned = self._apply(world, node.known, self._rules.time_decides, 1)
                promises.check_write(world, planned, Event.CHECK_UNDECIDED, f"{_who(node.known)}: its timer fires")
        if node.known.state is State.SUBMITTED and not node.known.parked:
            yield from self.call(world, place)

    def _arriving(self, world: Moment, known: Stored) -> tuple[int, ...]:
        """Return the letters that may arrive at a node that knows this, in their order."""
        if not world.is_ours:
            return self._indexes(self._mail | self._not_done | self._operators)
        arriving = world.network & (self._mail if known.state >= State.SUBMITTED else self._early_mail)
        if known.state in FINAL or (known.state is State.SUBMITTED and world.pauses):
            arriving |= self._not_done
        return self._indexes(arriving | self._operators)

    def _set_of(self, events: Set[Event]) -> int:
        return sum(1 << index for index, letter in enumerate(self._post.letters) if letter.event in events)

    def load(self, world: Moment, place: int) -> Steps:
        """Let a node read the row, at its start or again."""
        yield "coordinator: starts, reads the store", self._become(world, place, Node(world.stored, -1))

    def ask(self, world: Moment) -> Moment:
        """Add a check-back to the network."""
        return world.with_fact(Fact.CHECK_BACK_SENT)

    def call(self, world: Moment, place: int) -> Steps:
        """Call all branches, which succeed; their results may arrive at any time later."""
        known = world.nodes[place].known
        assert known is not None, "only a node that runs calls"
        label = f"{_who(known)}: calls the branches"
        promises.check_call(world, known, label)
        done = self._post.index(Event.ALL_SUCCEEDED, known.content)
        if not world.network >> done & 1:
            yield label, world.with_letter(done)

    def receive(self, world: Moment, place: int, index: int) -> Steps:
        """Let a letter arrive: the table decides what it does to the node's belief."""
        known, letter = world.nodes[place].known, self._post.letters[index]
        assert known is not None, "only a node that runs receives"
        event = self._classify(known, letter)
        step = self._rules.table(known.state, event)
        if step.action is Action.CHECK_BACK_FIRST:
            yield from self._check_back_first(world, place)
        label = f"{_who(known)}: receives {letter.name}"
        if step.action in _STORING or (step.action in _PAUSING and world.pauses):
            planned = self._become(world, place, Node(known, index))
            if not self._rules.flushes_before_reply:
                planned = self._reply(planned, letter, ReplyKind.OK)
            if not self._rules.flushes_before_call and step.next_state is State.SUBMITTED:
                promises.check_call(world, self._apply(world, known, State.SUBMITTED, letter.attempt), label)
            yield label, planned
            return
        promises.check_incident(world, known.state, event, step.action, label)
        self._check_repetition(known.state, event, label)
        yield label, self._reply(world, letter, step.reply)

    def _check_back_first(self, world: Moment, place: int) -> Steps:
        """Ask the producer before a force stop.

        A verdict counts as what happened. Without one, the operator's request counts.
        """
        after, verdict = barrier.ask(world.barrier, self._rules)
        asked = world.with_barrier(after)
        if verdict is Verdict.COMMITTED:
            yield from self.receive(asked, place, self._post.index(Event.CHECK_COMMITTED, after.owner))
        elif verdict is Verdict.ROLLED_BACK:
            asked = asked.with_fact(Fact.ROLLED_BACK_SPOKEN)
            yield from self.receive(asked, place, self._post.index(Event.CHECK_ROLLED_BACK))

    def flush(self, world: Moment, place: int) -> Steps:
        """Let the change under way meet the store.

        It is written, or it has lost its compare-and-set.
        """
        node, stored = world.nodes[place], world.stored
        known, letter = node.known, self._post.letters[node.pending]
        assert known is not None, "a change is planned on something known"
        expected = (stored.state, stored.version) == (known.state, known.version)
        if not self._rules.flush_checks_history_horizon and stored.state is State.FORGOTTEN:
            expected = known.state is State.ABSENT
        if expected or not self._rules.compares_and_sets:
            label = f"{_who(known)}: flushes {letter.name}"
            yield label, self._write(world, place, letter, label)
            return
        label = f"{_who(known)}: loses its compare-and-set for {letter.name}, finds {stored.state.name}"
        if not self._rules.applies_table_again:
            yield label, self._write(world, place, letter, label)
            return
        again = self._become(world, place, Node(stored, -1))
        for _, after in self.receive(again, place, node.pending):
            yield label, after

    def _classify(self, known: Stored, letter: Letter) -> Event:
        if letter.event is Event.SUBMIT and known.state is State.SUBMITTED and letter.attempt != known.content:
            return Event.SUBMIT_OTHER
        if letter.event is Event.CHECK_UNDECIDED:
            return self._rules.unknown_counts_as
        return letter.event

    def _write(self, world: Moment, place: int, letter: Letter, label: str) -> Moment:
        known = world.nodes[place].known
        assert known is not None, "a change is planned on something known"
        event = self._classify(known, letter)
        step = self._rules.table(known.state, event)
        brings = self._rules.takes_branches_of_row or event is not Event.CHECK_COMMITTED
        written = self._apply(world, known, step.next_state, letter.attempt if brings else known.content)
        if step.action in (Action.PARK, Action.REDRIVE):
            written = written._replace(parked=step.action is Action.PARK)
        promises.check_write(world, written, event, label)
        self._check_repetition(known.state, event, label)
        forced = Fact.FORCED if event is Event.FORCE_STOP else 0
        after = world._replace(
            stored=written,
            pauses=max(0, world.pauses - (step.action in _PAUSING)),
            replies=world.replies | forced,
        )
        return self._reply(self._become(after, place, Node(written, -1)), letter, ReplyKind.OK)

    def _check_repetition(self, state: State, event: Event, label: str) -> None:
        if (state, event) not in self._repeatable:
            promises.check_repetition(self._rules, state, event, label)
            self._repeatable.add((state, event))

    def _apply(self, world: Moment, known: Stored, state: State, content: int) -> Stored:
        """Return the row as the change leaves it.

        A decision takes the branches that come with it, and unparks.
        """
        version = world.stored.version + 1
        if state is known.state:
            return Stored(state, version, known.content, known.parked)
        taken = content if state is State.SUBMITTED else known.content
        return Stored(state, version, taken, False)

    def _become(self, world: Moment, place: int, node: Node) -> Moment:
        return world.with_nodes((*world.nodes[:place], node, *world.nodes[place + 1 :]))

    def _reply(self, world: Moment, letter: Letter, reply: ReplyKind) -> Moment:
        fact = 0
        if letter.event is Event.PREPARE:
            if world.producers[letter.attempt - 1].doing is Doing.PREPARING:
                ok = reply is ReplyKind.OK
                fact = prepare_acknowledged(letter.attempt) if ok else prepare_refused(letter.attempt)
            if reply is ReplyKind.OK:
                fact |= Fact.PREPARE_ACKNOWLEDGED
        elif letter.event is Event.SUBMIT and reply is ReplyKind.OK:
            fact = Fact.SUBMIT_ACKNOWLEDGED
        elif letter.event is Event.ABORT and reply is ReplyKind.OK:
            fact = Fact.ABORT_ACKNOWLEDGED
        return world.with_fact(fact) if fact & ~world.replies else world
