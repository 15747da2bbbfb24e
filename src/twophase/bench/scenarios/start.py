"""From the command to the ready line: on an empty store, and on one full of live messages."""

from __future__ import annotations

from typing import Final

from twophase.bench.scenarios.figure import Figure, Stage
from twophase.bench.scenarios.seeds import seed
from twophase.bench.setups import store

ROWS: Final = 100_000
_EMPTY_BAR_S: Final = 1.0
_FULL_BAR_S: Final = 3.0


def play_start(stage: Stage) -> list[Figure]:
    """See the module."""
    rows = stage.size or ROWS
    with store(stage.kind, stage.directory) as made:
        with made.served():
            stage.tell("the first start makes the tables")
        with made.served() as empty:
            stage.tell(f"start on an empty store; then {rows:,} live messages are put into it")
        seed(made, live=rows)
        with made.served() as full:
            stage.tell("start on the full one")
    return [
        Figure("start to ready, empty", empty.ready_s, "s", _EMPTY_BAR_S),
        Figure(f"start to ready, {rows:,} live messages", full.ready_s, "s", _FULL_BAR_S),
    ]
