"""The protocol keeps its promises in every interleaving of every world.

The number of interleavings is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from twophase.core.lifecycle import State

from .explore import explore
from .rules import Rules, Size
from .worlds import WORLDS

RecordProperty = Callable[[str, object], None]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", WORLDS.values(), ids=list(WORLDS))
def test_no_interleaving_breaks_a_promise(
    size: Size, request: pytest.FixtureRequest, record_property: RecordProperty, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.process_time()
    found = explore(Rules(), size)
    took_s = time.process_time() - began_s

    said = f"model, {request.node.callspec.id}: {found.states} states, {found.steps} steps, {took_s:.1f} s"
    record_property("note", said)
    with capsys.disabled():
        print(f"\n{said}")
    assert found.breach is None, str(found.breach)
    assert {"ABSENT", "PREPARED", "SUBMITTED", "SUCCEEDED", "FAILED"} <= found.seen
    assert size.history_is_purged == (State.FORGOTTEN.name in found.seen)


def test_the_main_world_is_large_enough_to_mean_something() -> None:
    main = next(iter(WORLDS.values()))

    assert (main.attempts, main.nodes) == (2, 2)
    assert explore(Rules(), Size(attempts=1, nodes=1, pauses=0)).states > 200


def test_exploring_twice_finds_the_same_states() -> None:
    size = Size(attempts=1, nodes=2)

    assert explore(Rules(), size) == explore(Rules(), size)
