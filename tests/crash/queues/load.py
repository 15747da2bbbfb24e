"""Producers and consumers of a soak of queues, and what is true at its end.

Two groups of consumers get everything. Consumers acknowledge, fail, extend and die; producers send plain, delayed and
grouped messages, and halves that they commit, roll back or leave. The server asks about those that are left.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.crash.queue_load import fate_of
from tests.crash.queues import wire
from tests.crash.queues.ledger import Ledger
from tests.crash.queues.servers import Servers
from tests.crash.test_queues import entries_in, id_of
from twophase.coordinator.queues import Decision
from twophase.core.errors import TwophaseError
from twophase.rocketmq_wire.codes import Code, Resolution

GROUPS: Final = ("billing", "stock")
MIXED: Final = ("orders", "returns", "parcels")
FIFO: Final = "moves"
TOPICS: Final = (*MIXED, FIFO)
_SENDERS: Final = 6
_HALVES: Final = 64
_MESSAGE_GROUPS: Final = 48
_CONSUMERS: Final = 2
"""Consumers of each group and topic; as many push as simple ones."""
_BATCH: Final = 16
_WAITING_MAX: Final = 4_000
"""Messages that no group has got yet, beyond which producers pause."""
_INVISIBLE_S: Final = 10
_EXTENDED_S: Final = 30
_HELD_S: Final = 4.5
"""Time for which a message is one consumer's alone. A hand-over waits longer."""
_AWAY_S: Final = 0.2
REST_S: Final = 180.0
_LOOK_S: Final = 0.2
_BETWEEN_FAULTS: Final = 200
"""Deliveries between two faults."""
_PEACE_MAX_S: Final = 30.0
_FAULTS_LEAST: Final = 2
"""Faults of the shortest run.

On a busy machine all messages may be sent before the first delivery.
"""
_RESOLUTIONS: Final = {Decision.COMMIT: Resolution.COMMIT, Decision.ROLLBACK: Resolution.ROLLBACK}


class Outcome(msgspec.Struct):
    """The result of a run."""

    ledger: Ledger
    faults: dict[str, int]
    seconds: float
    rest_s: float


class Load:
    """The clients of some servers.

    Arguments:
        servers: they run.
        ledger: the checker.
        chance: of everything that clients do.
        messages: at least as many are sent.
    """

    def __init__(self, servers: Servers, ledger: Ledger, chance: random.Random, messages: int) -> None:
        self._servers = servers
        self._ledger = ledger
        self._chance = chance
        self._messages = messages
        self._answers: set[asyncio.Task[None]] = set()
        self._streams: dict[str, asyncio.Task[None]] = {}

    # Producers.

    async def produce(self) -> None:
        """Send all messages."""
        await asyncio.gather(
            *(self._send(_BATCH) for _ in range(_SENDERS)),
            *(self._half() for _ in range(_HALVES)),
            *(self._grouped(f"group-{number}") for number in range(_MESSAGE_GROUPS)),
        )

    async def _may_send(self) -> bool:
        """Wait while consumers are behind; return False when enough was sent."""
        while self._is_sending and max(self._ledger.waiting.values()) > _WAITING_MAX:
            await asyncio.sleep(_AWAY_S)
        return self._is_sending

    @property
    def _is_sending(self) -> bool:
        return len(self._ledger) < self._messages or self._servers.faults.total() < _FAULTS_LEAST

    async def _send(self, batch: int) -> None:
        client = wire.new_client("sender")
        while await self._may_send():
            topic, made, ids = self._chance.choice(MIXED), [], []
            for _ in range(min(batch, max(1, self._messages - len(self._ledger)))):
                is_delayed = self._chance.random() < 0.1
                due_ms = wire.now_ms() + self._chance.randint(200, 3_000) if is_delayed else 0
                what = "delayed" if is_delayed else "plain"
                ids.append(self._ledger.new(what, due_ms=due_ms))
                made.append(wire.message(topic, ids[-1], what, _body(ids[-1]), due_ms=due_ms))
            await self._again(lambda port, made=made: port.send(made, client))  # type: ignore[misc]
            for id_ in ids:
                self._ledger.promise(id_)

    async def _grouped(self, name: str) -> None:
        client = wire.new_client("grouped")
        for number in itertools.count():
            if not await self._may_send():
                return
            id_ = self._ledger.new("of a message group", place=(name, number))
            made = [wire.message(FIFO, id_, "fifo", _body(id_), group=name)]
            await self._again(lambda port, made=made: port.send(made, client))  # type: ignore[misc]
            self._ledger.promise(id_)

    async def _half(self) -> None:
        client = wire.new_client("half")
        while await self._may_send():
            is_left, commit = self._chance.random() < 0.15, self._chance.random() < 0.75
            topic = self._chance.choice(MIXED)
            id_ = self._ledger.new("half, left" if is_left else "half, decided", commit=commit)
            made = [wire.message(topic, id_, "half", _body(id_))]
            sent = await self._again(lambda port, made=made: port.send(made, client))  # type: ignore[misc]
            if is_left:
                if commit:
                    self._ledger.promise(id_)  # by its check, which every producer answers
                continue
            (transaction,) = sent
            resolution = _RESOLUTIONS[fate_of(id_)]
            code = await self._again(
                lambda port, id_=id_, transaction=transaction, resolution=resolution, topic=topic: _decided(  # type: ignore[misc]
                    port, topic, id_, transaction, resolution
                )
            )
            self._ledger.require(code == Code.OK, "refused: a decision, though none was contrary", f"{code} {id_}")
            if commit:
                self._ledger.promise(id_)

    async def _again(self, call: Callable[[wire.Port], Awaitable[Any]]) -> Any:
        """Call one server after the other until one answers."""
        while True:
            ports = self._servers.ports
            if ports:
                answer = await call(self._chance.choice(ports))
                if answer:
                    return answer
                self._ledger.counts["calls without an answer"] += 1
            await asyncio.sleep(_AWAY_S)

    # Producers that are asked.

    async def answer(self) -> None:
        """Hold a producer's stream to each server, for ever."""
        while True:
            for port in self._servers.ports:
                task = self._streams.get(port.life)
                if task is None or task.done():
                    client = wire.new_client("asked")
                    self._streams[port.life] = asyncio.ensure_future(
                        port.stream(
                            client,
                            wire.producer_settings(MIXED),
                            lambda asked, port=port: self._asked(port, asked),  # type: ignore[misc]
                        )
                    )
            await asyncio.sleep(_LOOK_S)

    def _asked(self, port: wire.Port, asked: Any) -> None:
        task = asyncio.ensure_future(self._decide(port, asked))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _decide(self, port: wire.Port, asked: Any) -> None:
        id_ = asked.message.system_properties.message_id
        unknown = self._chance.random() < 0.05
        resolution = Resolution.UNSPECIFIED if unknown else _RESOLUTIONS[fate_of(id_)]
        self._ledger.counts["questions"] += 1
        code = await port.end(asked.message.topic.name, id_, asked.transaction_id, resolution, checked=True)
        self._ledger.require(
            code != Code.INVALID_TRANSACTION_ID, "refused: an answer, though none was contrary", f"{code} {id_}"
        )

    # Consumers.

    async def consume(self) -> None:
        """Take messages, for ever."""
        kinds = [
            (group, topic, number % 2 == 0) for group in GROUPS for topic in TOPICS for number in range(_CONSUMERS)
        ]
        await asyncio.gather(*(self._consumer(*kind) for kind in kinds))

    async def _consumer(self, group: str, topic: str, pushed: bool) -> None:
        ports = itertools.cycle(range(len(self._servers.all)))
        place = next(ports)
        while True:
            port = self._servers.all[place].port
            if port is not None:
                await self._life(port, group, topic, pushed)
            place = next(ports)
            await asyncio.sleep(_AWAY_S)

    async def _life(self, port: wire.Port, group: str, topic: str, pushed: bool) -> None:
        """Consume until the consumer dies, or this server gives it nothing."""
        client = wire.new_client("consumer")
        stream = asyncio.ensure_future(
            port.stream(client, wire.consumer_settings(group, topic), lambda _: None)
            if pushed
            else asyncio.Event().wait()
        )
        try:
            while True:
                asked_s, limit = time.monotonic(), self._chance.choice((4, 16, 32))
                found = await port.receive(group, topic, client, limit=limit, invisible_s=_INVISIBLE_S, renewed=pushed)
                if found is None:
                    return
                for one in found:
                    self._check_given(port, group, one, asked_s, stream if pushed else None)
                if self._chance.random() < 0.01:
                    self._ledger.counts["consumers that died"] += 1
                    for one in found if pushed else ():
                        self._ledger.released(group, one.id)
                    return
                if not await self._done(port, group, topic, client, found):
                    return  # the server may keep something for this client until its stream ends
        finally:
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)

    def _check_given(
        self, port: wire.Port, group: str, one: wire.Given, asked_s: float, stream: asyncio.Future[Any] | None
    ) -> None:
        self._ledger.require(one.body == _body(one.id), "corrupted: a body", f"{group} {one.id}")
        is_alive = None if stream is None else lambda: not stream.done()
        hold_s = float(_INVISIBLE_S) if stream is None else 60.0
        self._ledger.given(group, one.id, port.life, asked_s, hold_s, wire.now_ms(), is_alive)

    async def _done(self, port: wire.Port, group: str, topic: str, client: str, found: Sequence[wire.Given]) -> bool:
        """Acknowledge most messages; some fail, and some are kept for longer first.

        Returns False when the server has not taken all of that.
        """
        done, all_taken = [], True
        for one in found:
            drawn = self._chance.random()
            if drawn < 0.02:
                self._ledger.counts["failed"] += 1
                self._ledger.released(group, one.id)
                all_taken &= await port.extend(group, topic, one, client, 1) is not None
            elif drawn < 0.04:
                kept = await port.extend(group, topic, one, client, _EXTENDED_S)
                if kept is None:
                    self._ledger.released(group, one.id)
                    all_taken = False
                    continue
                self._ledger.counts["extended"] += 1
                self._ledger.extended(group, one.id, _EXTENDED_S - 1.0)
                done.append(kept)
            else:
                done.append(one)
        if not done:
            return all_taken
        for one in done:
            self._ledger.acknowledging(group, one.id)
        confirmed = await port.ack(group, topic, done, client)
        for one in done:
            if one.id in confirmed:
                self._ledger.acknowledged(group, one.id, port.life)
            else:
                self._ledger.released(group, one.id)
        return all_taken and len(confirmed) == len(done)

    async def end(self) -> None:
        """End what answers questions."""
        tasks = [*self._streams.values(), *self._answers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _decided(port: wire.Port, topic: str, id_: str, transaction: str, resolution: Resolution) -> int:
    code = await port.end(topic, id_, transaction, resolution, checked=False)
    return code if code in {Code.OK, Code.INVALID_TRANSACTION_ID} else 0


def _body(id_: str) -> bytes:
    return (f"{id_} " * 16).encode()


async def run(
    folder: Path,
    store: str,
    count: int,
    *,
    messages: int,
    seed: int,
    planted: str | None = None,
    peace_s: float = 3.0,
    rest_s: float = REST_S,
    progress: Callable[[int, int, int], None] = lambda *_: None,
) -> Outcome:
    """Send messages through failing servers, wait for rest, and check everything.

    Arguments:
        folder: of logs.
        store: a URL; the store is new.
        count: of servers.
        messages: at least as many are sent.
        seed: of the faults, and of what clients do.
        planted: a bug for each server.
        peace_s: the longest time between two faults.
        rest_s: the longest time until everything was given, after the last was sent.
        progress: called with messages, faults and broken promises so far.
    """
    chance = random.Random(seed)
    servers = Servers(folder, store, count, random.Random(seed + 1), planted)
    ledger = Ledger(GROUPS, hold_s=_HELD_S if count > 1 else None)
    load = Load(servers, ledger, chance, messages)
    began_s = time.monotonic()
    await servers.start()
    for_ever = [asyncio.ensure_future(one) for one in (load.answer(), load.consume())]
    try:
        producing = asyncio.ensure_future(load.produce())
        while not producing.done():
            await _peace(ledger, [producing, *for_ever], chance.uniform(1.0, peace_s))
            _raise_of(for_ever)
            if not producing.done():
                await servers.fault()
            progress(len(ledger), servers.faults.total(), ledger.violations.total())
        await producing
        sent_s = time.monotonic()
        while any(ledger.waiting.values()) and time.monotonic() < sent_s + rest_s:
            _raise_of(for_ever)
            await asyncio.sleep(_LOOK_S)
        at_rest_s = time.monotonic() - sent_s
        await asyncio.sleep(_INVISIBLE_S)  # what comes once too often comes now
    finally:
        for task in for_ever:
            task.cancel()
        await asyncio.gather(*for_ever, return_exceptions=True)
        await load.end()
        await servers.kill()
    await _check_store(servers, ledger)
    return Outcome(ledger, dict(servers.faults), time.monotonic() - began_s, at_rest_s)


async def _peace(ledger: Ledger, tasks: Sequence[asyncio.Future[Any]], seconds: float) -> None:
    """Wait for some seconds and some deliveries, or until a task ends."""
    done, began_s = ledger.counts["given"] + _BETWEEN_FAULTS, time.monotonic()
    while time.monotonic() < began_s + _PEACE_MAX_S and not any(task.done() for task in tasks):
        if time.monotonic() >= began_s + seconds and ledger.counts["given"] >= done:
            return
        await asyncio.sleep(_LOOK_S)


def _raise_of(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def _check_store(servers: Servers, ledger: Ledger) -> None:
    """Compare what stands in the store with what was promised."""
    store = servers.open_store()
    await store.start()
    try:
        ids: list[str] = []
        for topic in TOPICS:
            ids += [id_of(entry) async for entry in entries_in(store, topic)]
        ledger.check_queues(ids)
        undecided = await store.oldest_undecided(2**53, (0, ""), 10)
        ledger.require(not undecided, "undecided: a half message at rest", " ".join(row.gid for row in undecided))
        for group in GROUPS:
            letters = await store.queue_ends(f"%DLQ%{group}")
            promise = "given up: a dead letter, though no message failed that often"
            ledger.require(not any(letters.values()), promise, group)
            for topic in TOPICS if ledger.violations else ():  # for people: what is with consumers is undone, too
                ends = await store.queue_ends(topic)
                done = {one.queue: one.next_number for one in await store.queue_progress(group, topic)}
                ledger.require(done == ends, "undone: a group's progress", f"{group} {topic} {done} of {ends}")
    except TwophaseError as error:
        ledger.require(False, "unreadable: the store", str(error))
    finally:
        await store.stop()
