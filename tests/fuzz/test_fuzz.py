"""A few examples of every target; `make fuzz` plays many more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.play import Target, play
from tests.fuzz.process import Fuzzed
from tests.fuzz.targets import all_targets

_EXAMPLES = 40
_NAMES = (
    "OpenAPI, requests that fit",
    "OpenAPI, requests that do not",
    "HTTP as bytes",
    "JSON over HTTP",
    "many at once",
    "JSON-RPC",
    "gRPC",
    "bytes on the gRPC port",
    "responses of branches",
    "JSON of requests",
    "steps of gRPC requests",
    "gRPC messages",
    "addresses",
)


@pytest.fixture(scope="module")
def harness() -> Iterator[tuple[Fuzzed, dict[str, Target]]]:
    with all_targets() as (server, targets):
        yield server, {target.name: target for target in targets}


@pytest.mark.parametrize("name", _NAMES)
def test_nothing_that_is_sent_is_answered_wrongly(harness: tuple[Fuzzed, dict[str, Target]], name: str) -> None:
    server, targets = harness

    # The same examples in every run; `make fuzz` looks for others.
    assert play(targets[name], _EXAMPLES, seed=_NAMES.index(name)).cases > 0
    server.check()


def test_every_target_is_played(harness: tuple[Fuzzed, dict[str, Target]]) -> None:
    assert set(harness[1]) == set(_NAMES)
