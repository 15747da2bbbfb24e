"""A push consumer of RocketMQ's interface, and the stream of a client's settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from benchmarks.load import rocketmq_requests as requests
from benchmarks.load.ledger import Ledger
from benchmarks.load.rocketmq_client import Client, Messages
from twophase.http_client.address import Address
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import kind

WAIT_MS: Final = 20_000
_PAUSE_S: Final = 0.1


class Consumer:
    """A push consumer: one long poll at a time, an acknowledgement for each message.

    Arguments:
        address: the server's.
        topic: the topic; the group is a new one.
        ledger: hears of each message by its number.
        on_arrival: called with its number before.
    """

    def __init__(
        self, address: Address, topic: str, ledger: Ledger, on_arrival: Callable[[int], None] | None = None
    ) -> None:
        self.unacknowledged = 0
        self._ledger = ledger
        self._on_arrival = on_arrival
        self._topic = topic
        self._group = f"group-{topic}"
        self._client = Client(address, f"consumer-{topic}")
        self._acknowledgement = requests.acknowledgement(self._group, topic)
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and receive until `stop`; raises BenchmarkFailed."""
        await self._client.open()
        await announced(self._client, requests.consumer_settings(self._group, self._topic), _ignore)
        await self._client.ask("QueryRoute", requests.route(self._topic))
        await self._client.ask("QueryAssignment", requests.assignment(self._group, self._topic))
        self._polling = asyncio.ensure_future(self._poll())

    async def stop(self) -> None:
        """End. Safe without a start."""
        if self._polling is not None:
            self._polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._polling
            self._client.cut()

    async def _poll(self) -> None:
        answer, receive = kind("ReceiveMessageResponse"), requests.receive(self._group, self._topic, WAIT_MS)
        while True:
            for raw in await self._client.ask("ReceiveMessage", receive):
                part = answer.FromString(raw)
                if part.HasField("message"):
                    self._arrived(part.message)
                elif part.HasField("status") and part.status.code not in {Code.OK, Code.MESSAGE_NOT_FOUND}:
                    self._ledger.fail(f"ReceiveMessage: {part.status.code} {part.status.message}")
                    await asyncio.sleep(_PAUSE_S)

    def _arrived(self, message: Any) -> None:
        system = message.system_properties
        identity: str = system.message_id
        number = int(identity)
        if self._on_arrival is not None:
            self._on_arrival(number)
        self._ledger.arrive(number, 0)
        self.unacknowledged += 1
        acknowledging = _Acknowledging(self, self._ledger)
        raw = self._acknowledgement(identity, system.receipt_handle)
        self._client.call("AckMessage", raw, acknowledging, Messages(acknowledging.take))


class _Acknowledging:
    """One acknowledgement under way."""

    __slots__ = ("_answer", "_consumer", "_ledger")

    def __init__(self, consumer: Consumer, ledger: Ledger) -> None:
        self._consumer = consumer
        self._ledger = ledger
        self._answer = b""

    def take(self, message: bytes) -> None:
        self._answer = message

    def answered(self, refusal: str) -> None:
        self._consumer.unacknowledged -= 1
        if refusal := refused("AckMessageResponse", self._answer, refusal):
            self._ledger.fail(f"AckMessage: {refusal}")

    def cut_off(self) -> None:
        self._consumer.unacknowledged -= 1


class Settled:
    """The stream of a client's settings, which stays open."""

    def __init__(self, on_message: Callable[[bytes], None]) -> None:
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_message = on_message

    def take(self, message: bytes) -> None:
        """Take a message of the server; the first is the answer to the settings."""
        if not self.first.done():
            self.first.set_result(None)
        else:
            self._on_message(message)

    def answered(self, refusal: str) -> None:  # noqa: ARG002 -- the protocol's
        """Take notice of the end of the stream."""
        if not self.first.done():
            self.first.set_result(None)

    def cut_off(self) -> None:
        """Take notice of the end of the connection."""
        self.answered("")


async def announced(client: Client, settings: bytes, on_message: Callable[[bytes], None]) -> None:
    """Open a client's stream; return when the server has answered its settings.

    `on_message` takes what the server sends later.
    """
    settled = Settled(on_message)
    client.stream("Telemetry", settings, settled, settled.take)
    await settled.first


def refused(name: str, answer: bytes, refusal: str) -> str:
    """Return what speaks against an answer that has a status; empty when it is OK."""
    if refusal:
        return refusal
    status = kind(name).FromString(answer).status
    return "" if status.code == Code.OK else f"{status.code} {status.message}"


def _ignore(_message: bytes) -> None:
    """Ignore what a server sends over the stream."""
