"""Producers that die between prepare and submit.

The figure is the time from the due time of their check-backs until every message is decided. Each message is prepared
and abandoned; the check-back answers "committed" after 20 ms. The second part repeats this while another producer
hangs: it never answers its check-backs, and no other producer may wait for that. It has more messages than may wait
for one destination. In the third part it has more than the server may hold in memory.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from benchmarks.load.ledger import Ledger
from benchmarks.load.run import Run
from benchmarks.load.sink import Sink
from benchmarks.load.waiting import until
from benchmarks.load.workload import Mode, Workload
from benchmarks.scenarios.figure import Figure, Stage, api, play
from benchmarks.servers.setups import store
from twophase.http_client.address import Address

MESSAGES: Final = 10_000
DUE_S: Final = 10
_CHECK_S: Final = 0.02
_COMMITTED: Final = 200
_HUNG_FOR_EACH: Final = 1.5
_HELD_FOR_EACH: Final = 1.2
"""The bound of the active set in the third part, for each abandoned message.

It is more than wait for one destination (10 000 and those under way, at the ordinary size), and less than hang."""
_PATIENCE_S: Final = 120.0
_BAR_S: Final = 15.0
_ADDED_BAR_S: Final = 1.0
"""The bar for the added time.

A message that waited for one hanging call would wait for its time limit, which is longer than this. Some time is added
in any case by the work: half as many prepares again, and their check-backs."""


class _AbandonedLedger(Ledger):
    """A ledger that counts the branch's latency from the due time of the check-back."""

    def __init__(self, due_s: int) -> None:
        super().__init__()
        self._due_s = due_s

    def prepare_acknowledged(self, number: int) -> None:
        """Abandon the message: from now on only the check-back can decide it."""
        super().prepare_acknowledged(number)
        self.submitting(number, time.perf_counter() + self._due_s)
        self.acknowledge(number)


def play_abandoned(stage: Stage) -> list[Figure]:
    """Play the scenario of the module.

    `seconds`, a whole number, is the time from a message's prepare to its due check-back.
    """
    messages, due_s = stage.size or MESSAGES, max(1, int(stage.seconds or DUE_S))
    hung = int(messages * _HUNG_FOR_EACH)
    with store(stage.kind, stage.directory) as made, made.served() as server:
        stage.tell(f"{messages:,} prepares, abandoned; due in {due_s} s")
        alone = play(_decided(api(server.url), messages, due_s, hung=0))
        stage.tell(f"the same beside a producer that hangs with {hung:,}")
        beside = play(_decided(api(server.url), messages, due_s, hung=hung))
    held = int(messages * _HELD_FOR_EACH)
    with store(stage.kind, stage.directory) as made, made.served((f"active_max={held}",)) as server:
        stage.tell(f"the same where memory holds {held:,}")
        crowded = play(_decided(api(server.url), messages, due_s, hung=hung))
    return [
        *_figures(f"{messages:,} abandoned prepares: decided after due", alone, messages),
        *_figures(f"the same beside a producer that hangs with {hung:,}", beside, messages),
        *_added("what the producer that hangs adds for the others", alone, beside),
        *_figures(f"the same where memory holds {held:,} messages", crowded, messages),
    ]


def _figures(what: str, ledger: Ledger, messages: int) -> list[Figure]:
    return [
        Figure(f"{what}, p50", ledger.branch.percentile_ms(50) / 1000, "s"),
        Figure(f"{what}, the last", ledger.branch.percentile_ms(100) / 1000, "s", _BAR_S),
        Figure(f"{what}, called more than once", ledger.duplicates, "messages"),
        Figure(f"{what}, prepares refused", messages - ledger.acknowledged, "messages"),
        Figure(f"{what}, not decided within {_PATIENCE_S:g} s", ledger.owed, "messages", 0),
    ]


def _added(what: str, alone: Ledger, beside: Ledger) -> list[Figure]:
    """Return how much later it is; a negative number where it was sooner."""
    p50, last = ((beside.branch.percentile_ms(part) - alone.branch.percentile_ms(part)) / 1000 for part in (50, 100))
    return [Figure(f"{what}, p50", p50, "s", _ADDED_BAR_S), Figure(f"{what}, the last", last, "s", _ADDED_BAR_S)]


async def _decided(server: Address, messages: int, due_s: int, hung: int) -> Ledger:
    """Abandon `messages`, and `hung` more of a producer that never answers.

    It returns when the former are decided, or when the time is up.
    """
    ledger = _AbandonedLedger(due_s)
    async with contextlib.AsyncExitStack() as stack:
        if hung:
            hanging = _run(server, Ledger(), due_s)
            await stack.enter_async_context(hanging.opened())
            hanging.sink.holding = True
            await hanging.burst(hung)
        run = _run(server, ledger, due_s)
        run.sink = Sink(ledger, run.workload.payload_bytes, _COMMITTED, _CHECK_S)
        await stack.enter_async_context(run.opened())
        await run.burst(messages)
        await until(lambda: not ledger.owed, _PATIENCE_S)
    return ledger


def _run(server: Address, ledger: Ledger, due_s: int) -> Run:
    return Run(server, Workload(Mode.PREPARE, timeout_to_fail_s=due_s), ledger=ledger)
