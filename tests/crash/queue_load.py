"""A process with producers and consumers of one queue, which a test kills.

Several may be nodes of one store. Each writes a line for each step, with its time, and only when the step's promise
holds: `sent`, `committed`, `rolled`, `half`; `given` when a consumer has a message, `done` when its acknowledgement has
returned. The fate of a message is in its id, so that a question about one whose producer was killed has an answer.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time

import msgspec
import uvloop

from tests.support.null_observer import NullObserver
from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.queues import Decision, Delivered, Question, QueueMessage
from twophase.coordinator.queues.service import Queues
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import ReceiptStale, StoreError, TwophaseError, Unavailable
from twophase.core.hooks import WallClock
from twophase.core.schedule import Schedule
from twophase.server.stores import open_store

TOPIC, GROUP, NAME = "orders", "billing", "shop"
LEASE_MS = 3_000
INVISIBLE_MS = 2_000
_PRODUCERS, _CONSUMERS = 24, 6
_SOON = Schedule(first_ms=100, factor=1, cap_ms=100, jitter=0.0)
_SETTINGS = CoordinatorSettings(check_back=_SOON, timeout_to_fail_ms=200)
_BY_FATE = {"commit": Decision.COMMIT, "rollback": Decision.ROLLBACK}


def tell(step: str, id_: str) -> None:
    """Write a line, at once; its time is by a clock that all processes share."""
    os.write(1, f"{step} {id_} {time.monotonic_ns()}\n".encode())


def fate_of(id_: str) -> Decision:
    """Return the outcome of a message's local transaction."""
    return _BY_FATE[id_.rsplit("-", 1)[1]]


class Producer(msgspec.Struct, eq=False):
    """Answers the questions about what an earlier process left."""

    coordinator: Coordinator
    client_id: str
    producers: frozenset[str] = frozenset({NAME})
    answers: set[asyncio.Task[None]] = set()

    def ask(self, question: Question) -> bool:
        task = asyncio.ensure_future(self._answer(question))
        self.answers.add(task)
        task.add_done_callback(self.answers.discard)
        return True

    async def _answer(self, question: Question) -> None:
        fate = fate_of(question.message.message_id)
        try:
            await self.coordinator.queues.end(
                question.transaction_id, fate, checked=True, client_id=self.client_id, caller=None
            )
        except (Unavailable, StoreError):
            return  # it is asked again
        tell("committed" if fate is Decision.COMMIT else "rolled", question.message.message_id)


async def produce(coordinator: Coordinator, process: str, number: int) -> None:
    """Send messages and decide half ones, for ever; some are left undecided."""
    queues = coordinator.queues
    for count in range(1_000_000):
        kind = random.choice(("send", "commit", "rollback", "leave"))
        fate = "rollback" if kind == "rollback" or (kind == "leave" and count % 2) else "commit"
        message = QueueMessage(TOPIC, "", f"{process}-{number}-{count}-{fate}", bytes(200))
        try:
            await _produce_one(queues, process, message, kind)
        except (Unavailable, StoreError):
            await asyncio.sleep(0.1)  # this node has lost its slot to another that did not hear of it


async def _produce_one(queues: Queues, process: str, message: QueueMessage, kind: str) -> None:
    if kind == "send":
        (sent,) = await queues.send([message], None)
        if isinstance(sent, TwophaseError):
            raise sent
        tell("sent", message.message_id)
        return
    half = msgspec.structs.replace(message, kind="transaction")
    id_ = await queues.half(half, producers=NAME, client_id=process, check_after_ms=None, caller=None)
    tell("half", message.message_id)
    if kind != "leave":
        await queues.end(id_, fate_of(message.message_id), checked=False, client_id=process, caller=None)
        tell("committed" if kind == "commit" else "rolled", message.message_id)


async def consume(coordinator: Coordinator, *, until_empty: bool) -> None:
    """Take messages and acknowledge them."""
    queues = coordinator.queues
    while True:
        try:
            found = await queues.receive(
                "",
                GROUP,
                TOPIC,
                expression="*",
                limit=16,
                invisible_ms=INVISIBLE_MS,
                wait_ms=500,
                client_id="c",
                auto_renew=False,
            )
        except (Unavailable, StoreError):
            await asyncio.sleep(0.1)  # another node serves the topic, or did, and its lease is not over
            continue
        for one in found:
            tell("given", one.message.message_id)
        await asyncio.gather(*(_acknowledge(queues, one) for one in found))
        if until_empty and not found and await _is_empty(coordinator):
            return


async def _acknowledge(queues: Queues, one: Delivered) -> None:
    try:
        await queues.ack("", GROUP, TOPIC, one.handle)
    except (ReceiptStale, Unavailable, StoreError):
        return  # it took too long, or another node serves the topic now
    tell("done", one.message.message_id)


async def _is_empty(coordinator: Coordinator) -> bool:
    store = coordinator._runtime.store
    try:
        ends = await store.queue_ends(TOPIC)
        progress = {one.queue: one.next_number for one in await store.queue_progress(GROUP, TOPIC)}
        return ends == progress and (await coordinator.overview()).prepared == 0
    except (Unavailable, StoreError):
        return False  # this node has lost its slot, and will have another


async def main(url: str, process: str) -> None:
    """Produce and consume until killed; as process `last`, consume what is left."""
    store = open_store(url, WallClock(), lease_ms=LEASE_MS)
    coordinator = Coordinator(store, {}, _SETTINGS, WallClock(), random.random, NullObserver())
    await coordinator.start()
    coordinator.queues.attach(Producer(coordinator, process))
    await coordinator.queues.announce({"test": f"{process}:1"})
    tell("started", process)
    if process == "last":
        await consume(coordinator, until_empty=True)
        await coordinator.stop()
        return
    work = [produce(coordinator, process, number) for number in range(_PRODUCERS)]
    work += [consume(coordinator, until_empty=False) for _ in range(_CONSUMERS)]
    await asyncio.gather(*work)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2]))
