"""Recovery: every reachable message reaches its right end after the faults.

It checks I2 and I9. Every producer is dead. Only what a healthy system does by itself is used: the database ends open
transactions, one coordinator reads the store, flushes, checks back, calls, and an operator redrives what is parked. No
request is repeated.
"""

from __future__ import annotations

import itertools

from twophase.core.lifecycle import Event, State

from . import barrier
from .coordinator import Nodes, Steps
from .producer import Producers
from .promises import BrokenPromise, check_state
from .world import Fact, Moment, Post

_ENDS = frozenset({State.SUCCEEDED, State.FAILED, State.FORGOTTEN})


class Recovery:
    """The proof, state by state, that the right end can be reached.

    It remembers the states that it has proved.
    """

    def __init__(self, producers: Producers, nodes: Nodes, post: Post) -> None:
        self._producers = producers
        self._nodes = nodes
        self._post = post
        self._proved: set[Moment] = set()

    def prove(self, world: Moment) -> None:
        """Raise BrokenPromise (I2 or I9) when the message has no way to its right end."""
        path: list[Moment] = []
        labels: list[str] = []
        try:
            while world not in self._proved:
                check_state(world)
                if world in path:
                    raise self._stuck(world)
                path.append(world)
                if self._is_at_its_end(world):
                    break
                label, world = self._next(world)
                labels.append(label)
        except BrokenPromise as broken:
            broken.aftermath = tuple(labels)
            raise
        self._proved.update(path)

    def _is_at_its_end(self, world: Moment) -> bool:
        state = world.stored.state
        if world.barrier.bare:
            return state is State.PREPARED  # only a person knows which branches were added
        if barrier.is_committed(world.barrier) and not world.replies & Fact.FORCED:
            return state is State.SUCCEEDED or state is State.FORGOTTEN
        return state in _ENDS or state is State.ABSENT

    def _stuck(self, world: Moment) -> BrokenPromise:
        committed = barrier.is_committed(world.barrier)
        how = f"faults have stopped, and the message stays {world.stored.state.name} for ever"
        if world.barrier.horizon:
            return BrokenPromise("I10", f"{how}: below the horizon nobody can answer any more")
        if committed:
            return BrokenPromise("I2", f"{how}, though the local transaction is committed")
        return BrokenPromise("I9", f"{how}, undecided")

    def _next(self, world: Moment) -> tuple[str, Moment]:
        for step in self._producers.endings(world):
            return step
        node, stored = world.nodes[0], world.stored
        if node.known is not None and node.pending >= 0:
            return _first(self._nodes.flush(world, 0))
        if node.known != stored:
            return _first(self._nodes.load(world, 0))
        if stored.parked:
            return _first(self._nodes.receive(world._replace(pauses=1), 0, self._post.index(Event.REDRIVE)))
        if stored.state is State.SUBMITTED:
            done = self._post.index(Event.ALL_SUCCEEDED, stored.content)
            return _first(self._nodes.call(world, 0), self._nodes.receive(world, 0, done))
        answered, index = self._producers.answer(world)
        return _first(self._nodes.receive(answered, 0, index))


def _first(*ways: Steps) -> tuple[str, Moment]:
    return next(itertools.chain(*ways))
