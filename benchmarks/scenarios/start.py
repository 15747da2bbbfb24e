"""The time of a start, from the command to the ready line.

It is measured on an empty store, and on one full of live messages. Half of these are submitted and due, so that the
start has rows to read and calls to make: it reads a page of them before it is ready, and the others while it serves.
The other half is prepared, with check-backs due in a year: rows that the start does not need may not slow it. The time
until the due messages are delivered is measured, too: that of most of them, and of the last. A message that does not
fit into its receiver's queue returns after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final
from urllib.parse import parse_qs

from benchmarks.load.ledger import Ledger
from benchmarks.load.sink import PARSED, Sink
from benchmarks.load.waiting import until
from benchmarks.scenarios.figure import Figure, Stage, play
from benchmarks.scenarios.seeds import seed
from benchmarks.servers.setups import Store, store

ROWS: Final = 100_000
_EMPTY_BAR_S: Final = 1.0
_FULL_BAR_S: Final = 3.0
_MOST: Final = 0.9
_PATIENCE_S: Final = 300.0


class _Receiver(Sink):
    """A sink that knows messages by their gids: seeded ones have no numbers."""

    def __init__(self) -> None:
        super().__init__(Ledger(), PARSED)
        self.gids: set[str] = set()
        self.calls = 0

    def answer(self, path: bytes, body: bytes) -> bytes:
        """Account for a call; return its response."""
        self.calls += 1
        self.gids.update(parse_qs(path.partition(b"?")[2].decode())["gid"])
        return super().answer(path, body)


def play_start(stage: Stage) -> list[Figure]:
    """Play the scenario of the module; `size` is the number of live messages."""
    with store(stage.kind, stage.directory) as made:
        with made.served():
            stage.tell("the first start makes the tables")
        with made.served() as empty:
            stage.tell("start on an empty store")
        return [
            Figure("start to ready, empty", empty.ready_s, "s", _EMPTY_BAR_S),
            *play(_full(stage, made, stage.size or ROWS)),
        ]


async def _full(stage: Stage, made: Store, rows: int) -> list[Figure]:
    due = rows // 2
    receiver = _Receiver()
    url = await receiver.start()
    stage.tell(f"{rows:,} live messages are put into it, {due:,} of them due")
    async with contextlib.AsyncExitStack() as running:
        running.callback(receiver.stop)
        await asyncio.to_thread(seed, made, rows - due, due=due, receiver=f"{url}/01")
        stage.tell("start on the full one")
        # In a thread, because the start makes calls already.
        full = await asyncio.to_thread(running.enter_context, made.served())
        ready_s = time.perf_counter()
        await until(lambda: len(receiver.gids) >= _MOST * due, _PATIENCE_S)
        most_s = time.perf_counter() - ready_s
        await until(lambda: len(receiver.gids) >= due, _PATIENCE_S - most_s)
        all_s = time.perf_counter() - ready_s
    what = f"{rows:,} live messages, {due:,} of them submitted and due"
    return [
        Figure(f"start to ready, {what}", full.ready_s, "s", _FULL_BAR_S),
        Figure(f"the due ones, {_MOST:.0%} delivered after ready", most_s, "s"),
        Figure("the due ones, all delivered after ready", all_s, "s"),
        Figure("the due ones, called more than once", receiver.calls - len(receiver.gids), "messages"),
        Figure(f"the due ones, not delivered within {_PATIENCE_S:g} s", due - len(receiver.gids), "messages", 0),
    ]
