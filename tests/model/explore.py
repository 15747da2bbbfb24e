"""The breadth-first exploration of everything that can happen.

So the first breach found is one with the shortest story.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator

import msgspec

from .coordinator import Nodes
from .producer import Producers
from .promises import BrokenPromise
from .recovery import Recovery
from .rules import Rules, Size
from .symmetry import Symmetry
from .world import Moment, Post, beginning


class Breach(msgspec.Struct, frozen=True):
    """A promise that does not hold, and the shortest story that shows it."""

    promise: str
    how: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"  {number:2d}. {step}" for number, step in enumerate(self.story, 1))
        return f"{self.promise} is broken: {self.how}\n{steps}"


class Findings(msgspec.Struct, frozen=True):
    """The results of an exploration."""

    states: int
    steps: int
    breach: Breach | None
    seen: frozenset[str] = frozenset()
    """The stored states that were met, by name.

    An exploration that reaches nothing proves nothing.
    """


class Model:
    """One world under one set of rules."""

    def __init__(self, rules: Rules, size: Size) -> None:
        post = Post(size.attempts)
        self._size = size
        self._producers = Producers(rules, size, post)
        self._nodes = Nodes(rules, size, post)
        self._recovery = Recovery(self._producers, self._nodes, post)
        self.symmetry = Symmetry(size.attempts, post)

    def steps(self, world: Moment) -> Iterator[tuple[str, Moment]]:
        """Yield everything that may happen next."""
        yield from self._producers.steps(world)
        yield from self._nodes.steps(world)

    def explore(self) -> Findings:
        """Visit every reachable state, or stop at the first breach.

        Of states that are alike only the typical one is visited.
        """
        # Hundreds of thousands of worlds, none in a cycle: the search for cycles among them would take an eighth of the
        # time.
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._explored()
        finally:
            if collects:
                gc.enable()

    def _explored(self) -> Findings:
        first = beginning(self._size)
        typical = self.symmetry.typical
        origin: dict[Moment, Moment | None] = {first: None}
        waiting = deque([first])
        steps = 0
        while waiting:
            world = waiting.popleft()
            try:
                self._recovery.prove(world)
                for _, after in self.steps(world):
                    steps += 1
                    if after is world:
                        continue
                    met = typical(after)
                    if met not in origin:
                        origin[met] = world
                        waiting.append(met)
            except BrokenPromise as broken:
                return Findings(len(origin), steps, self._told(origin, world, broken))
        return Findings(len(origin), steps, None, frozenset(world.stored.state.name for world in origin))

    def _told(self, origin: dict[Moment, Moment | None], end: Moment, broken: BrokenPromise) -> Breach:
        path = [end]
        while (before := origin[path[-1]]) is not None:
            path.append(before)
        # The worlds on the path are typical ones; the story keeps the names of its beginning.
        here, story = path.pop(), list[str]()
        for met in reversed(path):
            label, here = next(step for step in self.steps(here) if self.symmetry.typical(step[1]) == met)
            story.append(label)
        broken = self._broken(here) or broken
        if broken.aftermath:
            story += ["(faults stop here)", *broken.aftermath]
        if broken.step:
            story.append(broken.step)
        return Breach(broken.promise, broken.how, tuple(story))

    def _broken(self, world: Moment) -> BrokenPromise | None:
        """Return the promise that does not hold in this world, or in a step from it."""
        try:
            self._recovery.prove(world)
            for _ in self.steps(world):
                pass
        except BrokenPromise as broken:
            return broken
        return None


def explore(rules: Rules, size: Size) -> Findings:
    """Check every interleaving of a world of that size under those rules."""
    return Model(rules, size).explore()
