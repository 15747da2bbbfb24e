"""One world of each family is enough.

What follows from a renamed world is what follows from the world, renamed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from .explore import Model
from .rules import Rules, Size
from .world import Moment, beginning
from .worlds import WORLDS

SEVERAL = {name: size for name, size in WORLDS.items() if size.attempts > 1}
SMALL = Size(attempts=2, nodes=1, pauses=0)
MET = 2_000


def _reachable(model: Model, size: Size) -> Iterator[Moment]:
    """Yield every world, under any names; the earliest come first."""
    met = {beginning(size): None}
    waiting = [beginning(size)]
    for world in waiting:
        yield world
        for _, after in model.steps(world):
            if after not in met:
                met[after] = None
                waiting.append(after)


@pytest.mark.parametrize("size", SEVERAL.values(), ids=list(SEVERAL))
def test_what_follows_does_not_depend_on_the_names(size: Size) -> None:
    model = Model(Rules(), size)
    for world in itertools.islice(_reachable(model, size), 0, MET, 20):
        follows = [after for _, after in model.steps(world)]
        for renaming in model.symmetry.renamings.values():
            assert {renaming.of(after) for after in follows} == {after for _, after in model.steps(renaming.of(world))}


@pytest.mark.parametrize("size", SEVERAL.values(), ids=list(SEVERAL))
def test_the_typical_world_is_one_of_those_alike(size: Size) -> None:
    model = Model(Rules(), size)
    worlds = list(itertools.islice(_reachable(model, size), 0, MET, 20))
    for world in worlds:
        typical = model.symmetry.typical(world)
        alike = {renaming.of(world) for renaming in model.symmetry.renamings.values()}

        assert model.symmetry.typical(typical) == typical
        assert sorted(typical.nodes, key=repr) in [sorted(one.nodes, key=repr) for one in alike]
        assert typical._replace(nodes=()) in {one._replace(nodes=()) for one in alike}
    assert len({model.symmetry.typical(world) for world in worlds}) < len(worlds)


def test_of_every_world_there_is_the_typical_one_is_explored_and_no_other() -> None:
    model = Model(Rules(), SMALL)
    typical = {model.symmetry.typical(world) for world in _reachable(model, SMALL)}

    assert model.explore().states == len(typical)
