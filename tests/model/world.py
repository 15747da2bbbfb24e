"""One state of the model: everything durable, volatile, and ever sent.

A state is immutable and hashable. The network is a set that only grows: what was sent once may arrive at any
coordinator, at any time, any number of times, in any order, or never. Losing, repeating, delaying and reordering need
no steps of their own.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from twophase.core.lifecycle import Event, State

from . import barrier
from .barrier import Barrier
from .rules import Size


class Stored(NamedTuple):
    """The row in the coordinators' store.

    `content` names the attempt whose branches it holds, 0 before that is known. A change applies when (state, version)
    are the expected ones.
    """

    state: State
    version: int
    content: int
    parked: bool


class Node(NamedTuple):
    """One coordinator's memory.

    It holds what the node believes is stored (None: it just started), and its change under way.
    """

    known: Stored | None
    pending: int
    """Index of the letter whose change waits for its flush; -1 for none."""


class Doing(enum.IntEnum):
    """The step of a producer's flow (the SDK's, rules 1 to 4)."""

    START = 0
    PREPARING = 1
    BEGINNING = 2
    WORKING = 3
    COMMITTING = 4
    DOUBTING = 5
    """An exception was seen: roll back, then ask the barrier."""
    SUBMITTING = 6
    ABORTING = 7
    ENDED = 8
    """Returned, raised, or dead: it does nothing any more."""


class Producer(NamedTuple):
    """One attempt's process; `content` is what its submit will carry."""

    doing: Doing
    content: int


class Moment(NamedTuple):
    """One state of the whole world."""

    stored: Stored
    barrier: Barrier
    producers: tuple[Producer, ...]
    nodes: tuple[Node, ...]
    network: int
    """A set of letters, bit i for letter i."""
    replies: int
    """A set of replies and other remembered facts, see `Fact`."""
    pauses: int
    """Number of changes of version without a change of state that are left."""

    @property
    def is_ours(self) -> bool:
        """Return True when the producers keep the rules of twophase's SDK.

        Otherwise every letter was sent before the beginning.
        """
        return self.network >= 0

    # The exploration spends its time here: written out, these take a third of the time of `_replace`.

    def with_barrier(self, changed: Barrier) -> Moment:
        """Return the same moment with another business database."""
        stored, _, producers, nodes, network, replies, pauses = self
        return Moment(stored, changed, producers, nodes, network, replies, pauses)

    def with_producers(self, changed: tuple[Producer, ...]) -> Moment:
        """Return the same moment with other flows."""
        stored, database, _, nodes, network, replies, pauses = self
        return Moment(stored, database, changed, nodes, network, replies, pauses)

    def with_nodes(self, changed: tuple[Node, ...]) -> Moment:
        """Return the same moment with other coordinators."""
        stored, database, producers, _, network, replies, pauses = self
        return Moment(stored, database, producers, changed, network, replies, pauses)

    def with_letter(self, place: int) -> Moment:
        """Return the same moment with one more letter in the network, for ever."""
        stored, database, producers, nodes, network, replies, pauses = self
        return Moment(stored, database, producers, nodes, network | 1 << place, replies, pauses)

    def with_fact(self, fact: int) -> Moment:
        """Return the same moment with one more fact, for ever."""
        stored, database, producers, nodes, network, replies, pauses = self
        return Moment(stored, database, producers, nodes, network, replies | fact, pauses)


class Letter(NamedTuple):
    """A letter that may arrive at a coordinator.

    It is a request, a verdict, a branch's result or an operator's request.
    """

    name: str
    event: Event
    attempt: int = 0
    """The attempt whose prepare or branches it carries; 0 where it names no attempt."""


class Fact(enum.IntEnum):
    """A fact that cannot be undone."""

    SUBMIT_ACKNOWLEDGED = 1
    ABORT_ACKNOWLEDGED = 2
    CHECK_BACK_SENT = 4
    ROLLED_BACK_SPOKEN = 8
    FORCED = 16
    """An operator overrode: the one stated exception to I2 and I3."""
    PREPARE_ACKNOWLEDGED = 32
    FIRST_ATTEMPT = 64
    """The first of two bits an attempt, kept while the attempt waits for them.

    They are: prepare acknowledged, prepare refused.
    """


class Post:
    """Every letter that can exist in a world with that many attempts, with an index."""

    def __init__(self, attempts: int) -> None:
        each = range(1, attempts + 1)
        self.letters: tuple[Letter, ...] = (
            *(Letter(f"prepare of attempt {n}", Event.PREPARE, n) for n in each),
            *(Letter(f"submit with the branches of attempt {n}", Event.SUBMIT, n) for n in each),
            Letter("abort", Event.ABORT),
            *(Letter(f"'committed, branches of attempt {n}'", Event.CHECK_COMMITTED, n) for n in each),
            Letter("'rolled back'", Event.CHECK_ROLLED_BACK),
            Letter("no verdict", Event.CHECK_UNDECIDED),
            *(Letter(f"'all branches of attempt {n} succeeded'", Event.ALL_SUCCEEDED, n) for n in each),
            Letter("'a branch failed'", Event.BRANCH_NOT_DONE),
            Letter("a prepare with other branches", Event.PREPARE_OTHER),
            Letter("a submit with other branches", Event.SUBMIT_OTHER),
            Letter("'all the other branches succeeded'", Event.ALL_SUCCEEDED),
            Letter("the operator's force stop", Event.FORCE_STOP),
            Letter("the operator's park", Event.PARK),
            Letter("the operator's redrive", Event.REDRIVE),
            Letter("the operator's retry now", Event.HURRY),
            Letter("the operator's redirect", Event.REDIRECT),
        )
        self._places = {(letter.event, letter.attempt): place for place, letter in enumerate(self.letters)}

    def index(self, event: Event, attempt: int = 0) -> int:
        """Return the index of the letter with that event and attempt.

        `attempt` is 0 where the letter does not belong to one.
        """
        return self._places[event, attempt]


def prepare_acknowledged(attempt: int) -> int:
    """Return the reply that `attempt` waits for: its prepare was acknowledged."""
    return Fact.FIRST_ATTEMPT << 2 * (attempt - 1)


def prepare_refused(attempt: int) -> int:
    """Return the other reply that `attempt` may get."""
    return Fact.FIRST_ATTEMPT << 2 * (attempt - 1) + 1


NEW = Stored(State.ABSENT, 0, 0, False)
DOWN = Node(None, -1)


def beginning(size: Size) -> Moment:
    """Return the first moment: the coordinators have not looked into the store."""
    return Moment(
        stored=NEW,
        barrier=barrier.empty(size.attempts),
        producers=(Producer(Doing.ENDED if size.contrary_words else Doing.START, 0),) * size.attempts,
        nodes=(DOWN,) * size.nodes,
        network=~0 if size.contrary_words else 0,
        replies=0,
        pauses=size.pauses,
    )
