"""All targets, with the server they need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.fuzz.api import Api
from tests.fuzz.branches import Branches
from tests.fuzz.parsers import parser_targets
from tests.fuzz.play import Target
from tests.fuzz.process import Fuzzed, fuzzed
from tests.fuzz.rocketmq_calls import RocketmqCalls
from tests.fuzz.wires import Wires


@contextlib.contextmanager
def all_targets() -> Iterator[tuple[Fuzzed, list[Target]]]:
    """Yield a running server, and everything that is fuzzed."""
    with contextlib.ExitStack() as running:
        server = running.enter_context(fuzzed())
        branches = running.enter_context(contextlib.closing(Branches()))
        wires = running.enter_context(contextlib.closing(Wires(server, branches)))
        queues = running.enter_context(contextlib.closing(RocketmqCalls(server)))
        yield server, [*Api(server, branches).targets(), *wires.targets(), *queues.targets(), *parser_targets()]
