"""Transactions over RocketMQ's interface, and a push consumer.

A transaction is a half message and its commit.

Promise: each committed message is looked for in its queue, also where no consumer runs beside the producers: it is then
received after the window. Messages are numbered by their message ids, so the ledger counts what was lost, what came
twice, and what came before its commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.load import rocketmq_requests as requests
from benchmarks.load.ledger import Ledger
from benchmarks.load.measurement import Measurement
from benchmarks.load.rocketmq_client import Client, Messages
from benchmarks.load.rocketmq_consumer import Consumer, refused
from benchmarks.load.waiting import until
from benchmarks.load.window import Watch, steady
from benchmarks.load.workload import Workload
from benchmarks.servers.processes import Meter, Process
from twophase.http_client.address import Address
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import kind

GENERATOR: Final = "generator"
_CLIENTS: Final = 2
"""Clients that share the transactions under way.

The server bounds the new headers of a connection, and each call has one."""
_DUPLICATES_S: Final = 0.2
_ECHOED: Final = "queue-" + "0" * 32


class Subject(msgspec.Struct, frozen=True):
    """The server of a run, and its topic.

    `echoes`: its answers are the requests. `consumes`: a push consumer runs beside the producers.
    """

    address: Address
    topic: str
    echoes: bool = False
    consumes: bool = False


class Transactions:
    """A run of transactions, as many at a time as the workload has connections."""

    def __init__(self, subject: Subject, workload: Workload) -> None:
        self.ledger = Ledger()
        self.generating = True
        self.half = requests.half_of(subject.topic)
        self.commit = requests.Commit(subject.topic)
        self.echoes = subject.echoes
        self._subject = subject
        self._workload = workload

    async def measure(self, processes: Sequence[Process]) -> Measurement:
        """Do the whole run.

        Raises:
            BenchmarkFailed: the server cannot be reached, or every request fails.
        """
        subject, workload, ledger = self._subject, self._workload, self.ledger
        clients = [Client(subject.address, f"producer-{subject.topic}-{number}") for number in range(_CLIENTS)]
        consumer = Consumer(subject.address, subject.topic, ledger)
        try:
            for client in clients:
                await client.open()
                if not subject.echoes:
                    await client.ask("QueryRoute", requests.route(subject.topic))
            if subject.consumes:
                await consumer.start()
            with steady():
                senders = [_Sender(self, clients[number % _CLIENTS]) for number in range(workload.connections)]
                for sender in senders:
                    sender.begin()
                done = self._delivered if subject.consumes else self._acknowledged
                window = await Watch(workload, ledger, done, Meter(processes, GENERATOR)).measure()
                self.generating = False
                drained_s = await self._drain(senders, consumer)
            return window.measurement(workload, ledger, drained_s)
        finally:
            await consumer.stop()
            for client in clients:
                client.cut()

    async def _drain(self, senders: list[_Sender], consumer: Consumer) -> float:
        """Wait for the last answers, and for all that was committed."""
        started_s = time.perf_counter()
        await until(lambda: not any(sender.busy for sender in senders), self._workload.drain_s)
        self.ledger.unanswered = sum(sender.busy for sender in senders)
        if self.echoes:
            return time.perf_counter() - started_s
        if not self._subject.consumes:
            await consumer.start()
        await until(lambda: not self.ledger.owed and not consumer.unacknowledged, self._workload.drain_s)
        drained_s = time.perf_counter() - started_s
        await asyncio.sleep(_DUPLICATES_S)
        return drained_s

    def _acknowledged(self) -> int:
        return self.ledger.acknowledged

    def _delivered(self) -> int:
        return self.ledger.delivered


class _Sender:
    """Sends a half message and its commit, one transaction after the other."""

    __slots__ = ("_answer", "_client", "_commits", "_number", "_reader", "_run", "_since_s", "busy")

    def __init__(self, run: Transactions, client: Client) -> None:
        self.busy = False
        self._run = run
        self._client = client
        self._commits = False
        self._number = 0
        self._since_s = 0.0
        self._answer = b""
        self._reader = Messages(self._take)

    def begin(self) -> None:
        """Begin a transaction."""
        run = self._run
        self.busy, self._commits = True, False
        self._since_s = time.perf_counter()
        self._number = run.ledger.begin(self._since_s)
        self._client.call("SendMessage", run.half(self._number), self, self._reader)

    def _take(self, message: bytes) -> None:
        self._answer = message

    def answered(self, refusal: str) -> None:
        """Continue after the answer to the request under way."""
        run, ledger, now_s = self._run, self._run.ledger, time.perf_counter()
        if not self._commits:
            transaction_id, refusal = (_ECHOED, refusal) if run.echoes else sent(self._answer, refusal)
            if not refusal:
                if self._number >= ledger.measured_from:
                    ledger.prepare.add(now_s - self._since_s)
                self._commits, self._since_s = True, now_s
                ledger.submitting(self._number, now_s)
                self._client.call("EndTransaction", run.commit(self._number, transaction_id), self, self._reader)
                return
            ledger.fail(f"SendMessage: {refusal}")
        else:
            refusal = refusal if run.echoes else refused("EndTransactionResponse", self._answer, refusal)
            if not refusal:
                if self._number >= ledger.measured_from:
                    ledger.submit.add(now_s - self._since_s)
                ledger.acknowledge(self._number)
            else:
                ledger.fail(f"EndTransaction: {refusal}")
        if run.echoes and not refusal:
            ledger.arrive(self._number, 0)
        self.busy = False
        if run.generating:
            self.begin()

    def cut_off(self) -> None:
        """Stop: the connection is gone, and the request's outcome is unknown."""
        self.busy = False
        self._run.ledger.fail("the connection was lost")


def sent(answer: bytes, refusal: str) -> tuple[str, str]:
    """Return the transaction id in a SendMessageResponse, and what speaks against it."""
    if refusal:
        return "", refusal
    found = kind("SendMessageResponse").FromString(answer)
    if found.status.code != Code.OK:
        return "", f"{found.status.code} {found.status.message}"
    return found.entries[0].transaction_id, ""
