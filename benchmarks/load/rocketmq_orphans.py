"""Half messages whose producer says nothing, until it is asked about them.

Another client of the same topic is asked, and commits; a push consumer receives. The ledger's latencies count from the
moment at which a message is due to be asked about.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from benchmarks.failure import BenchmarkFailed
from benchmarks.load import rocketmq_requests as requests
from benchmarks.load.histogram import Histogram
from benchmarks.load.ledger import Ledger
from benchmarks.load.rocketmq_client import Client, Messages
from benchmarks.load.rocketmq_consumer import Consumer, announced, refused
from benchmarks.load.rocketmq_run import sent
from benchmarks.load.waiting import until
from twophase.http_client.address import Address
from twophase.rocketmq_wire.codes import Source
from twophase.rocketmq_wire.descriptors import kind

_AT_A_TIME: Final = 32
_DUPLICATES_S: Final = 0.2


class Orphans:
    """Half messages of one topic without a decision.

    Arguments:
        address: the server's.
        topic: a new one.
        messages: their number.
        due_ms: the time from a message to the question about it.
    """

    def __init__(self, address: Address, topic: str, messages: int, due_ms: int) -> None:
        self.ledger = Ledger()
        self.asked = Histogram()
        """From due to the question."""
        self.repeated = 0
        """Questions about a message that was asked about before."""
        self._address = address
        self._topic = topic
        self._messages = messages
        self._due_ms = due_ms
        self._due_s: dict[int, float] = {}
        self._asked: set[int] = set()
        self._half = requests.half_of(topic, due_ms)
        self._commit = requests.Commit(topic, Source.SERVER_CHECK)
        self._producer = Client(address, f"answering-{topic}")

    async def play(self, patience_s: float) -> None:
        """Send them, and wait until all are delivered.

        It waits for at most `patience_s` after the last is due.

        Raises:
            BenchmarkFailed: the server cannot be reached.
        """
        dead = Client(self._address, f"dead-{self._topic}")
        consumer = Consumer(self._address, self._topic, self.ledger)
        try:
            await dead.open()
            await dead.ask("QueryRoute", requests.route(self._topic))
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_A_TIME):
                    group.create_task(self._send(dead))
            dead.cut()
            await self._producer.open()
            await announced(self._producer, requests.producer_settings(self._topic), self._question)
            await consumer.start()
            await until(self._all_delivered, patience_s + self._due_ms / 1000)
            await asyncio.sleep(_DUPLICATES_S)
        finally:
            await consumer.stop()
            self._producer.cut()

    def _all_delivered(self) -> bool:
        return self.ledger.delivered >= self._messages

    async def _send(self, client: Client) -> None:
        ledger = self.ledger
        while ledger.begun < self._messages:
            number = ledger.begin(0.0)
            answers = await client.ask("SendMessage", self._half(number))
            self._due_s[number] = time.perf_counter() + self._due_ms / 1000
            _, refusal = sent(answers[0], "")
            if refusal:
                raise BenchmarkFailed(f"SendMessage: {refusal}", remedy="")
            ledger.prepare_acknowledged(number)

    def _question(self, raw: bytes) -> None:
        """Answer a question: commit."""
        command = kind("TelemetryCommand").FromString(raw)
        if not command.HasField("recover_orphaned_transaction_command"):
            return
        question = command.recover_orphaned_transaction_command
        number = int(question.message.system_properties.message_id)
        due_s = self._due_s[number]
        if number in self._asked:
            self.repeated += 1
        else:
            self._asked.add(number)
            self.asked.add(time.perf_counter() - due_s)
            self.ledger.submitting(number, due_s)
        answering = _Answering(self.ledger, number)
        raw = self._commit(number, question.transaction_id)
        self._producer.call("EndTransaction", raw, answering, Messages(answering.take))


class _Answering:
    """One answer to a question under way."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self._number = number
        self._answer = b""

    def take(self, message: bytes) -> None:
        self._answer = message

    def answered(self, refusal: str) -> None:
        if refusal := refused("EndTransactionResponse", self._answer, refusal):
            self._ledger.fail(f"EndTransaction: {refusal}")
        else:
            self._ledger.acknowledge(self._number)

    def cut_off(self) -> None:
        self._ledger.fail("EndTransaction: the connection was lost")
