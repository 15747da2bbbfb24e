"""Producers and consumers of queues, as a wire format would be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, Harness
from twophase.coordinator.queues import Decision, Delivered, Question, QueueMessage, Sent
from twophase.core.errors import TwophaseError
from twophase.stores.queue_rows import Entry

TOPIC, GROUP, NAME = "orders", "billing", "orders-service"


def order(id_: str, **fields: Any) -> QueueMessage:
    """Return a message to the topic."""
    return QueueMessage(TOPIC, "", id_, f"body of {id_}".encode(), **fields)


class Asked(msgspec.Struct, eq=False):
    """A client that keeps the questions it gets; it takes `room` of them."""

    client_id: str
    producers: frozenset[str] = frozenset({NAME})
    questions: list[Question] = []
    room: int = 1_000

    def ask(self, question: Question) -> bool:
        if len(self.questions) >= self.room:
            return False
        self.questions.append(question)
        return True


class Queueing:
    """Short ways to use the queues of a harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    @property
    def queues(self) -> Any:
        return self.harness.coordinator.queues

    def hold_pages(self, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
        """Hold up the reading of pages.

        Returns the event that a page is asked for, and the one that lets it be read.
        """
        reading, going_on = asyncio.Event(), asyncio.Event()
        read = self.harness.store.queue_page

        async def held(topic: str, queue: int, least: int, limit: int) -> Sequence[Entry]:
            reading.set()
            await going_on.wait()
            return await read(topic, queue, least, limit)

        monkeypatch.setattr(self.harness.store, "queue_page", held)
        return reading, going_on

    async def send(self, *messages: QueueMessage) -> list[Sent]:
        sent: list[Sent] = await asyncio.wait_for(self.queues.send(messages, None), PATIENCE_S)
        for one in sent:
            assert not isinstance(one, TwophaseError), one
        return sent

    async def half(
        self,
        message: QueueMessage,
        *,
        client_id: str = "a",
        check_after_ms: int | None = 1_000,
        producers: str = NAME,
    ) -> str:
        message = msgspec.structs.replace(message, kind="transaction")
        made: str = await asyncio.wait_for(
            self.queues.half(
                message, producers=producers, client_id=client_id, check_after_ms=check_after_ms, caller=None
            ),
            PATIENCE_S,
        )
        return made

    async def end(self, id_: str, decision: Decision, *, checked: bool = False) -> None:
        await asyncio.wait_for(self.queues.end(id_, decision, checked=checked, client_id="a", caller=None), PATIENCE_S)

    async def receive(self, limit: int = 10, **options: Any) -> list[Delivered]:
        found: list[Delivered] = await asyncio.wait_for(self.receiving(limit, **options), PATIENCE_S)
        return found

    def receiving(self, limit: int = 10, **options: Any) -> Any:
        options = {
            "expression": "*",
            "invisible_ms": 30_000,
            "wait_ms": 0,
            "client_id": "c",
            "auto_renew": False,
            "group": GROUP,
            "topic": TOPIC,
            **options,
        }
        return self.queues.receive("", options.pop("group"), options.pop("topic"), limit=limit, **options)

    async def waiting(self, polls: int = 1) -> None:
        """Wait until this number of polls wait for a message."""
        served = self.queues.serving._subscriptions
        await until(lambda: sum(len(one._waiters) for one in served.values()) == polls)

    async def ids(self, limit: int = 10, **options: Any) -> list[str]:
        return [one.message.message_id for one in await self.receive(limit, **options)]

    async def ack(self, *delivered: Delivered) -> None:
        for one in delivered:
            await asyncio.wait_for(self.queues.ack("", GROUP, TOPIC, one.handle), PATIENCE_S)
