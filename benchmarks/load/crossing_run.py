"""A run against two nodes of one store, which a message may cross between."""

from __future__ import annotations

import asyncio

from benchmarks.load.producer import Producer
from benchmarks.load.run import Run
from benchmarks.load.workload import Workload
from twophase.http_client.address import Address


class CrossingRun(Run):
    """The producers have the two nodes in turn.

    Arguments:
        nodes: the two addresses of the dtm API.
        workload: the messages to send.
        crossing: send each submit to the other node than the prepare.
    """

    def __init__(self, nodes: tuple[Address, Address], workload: Workload, *, crossing: bool) -> None:
        super().__init__(nodes[0], workload)
        self._nodes = nodes
        self._crossing = crossing
        self._dialled = 0

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        home, away = self._nodes if self._dialled % 2 else self._nodes[::-1]
        self._dialled += 1
        if not self._crossing:
            await loop.create_connection(lambda: Producer(self), home.host, home.port)
            return
        submits, answers = await loop.create_connection(_Answers, away.host, away.port)
        try:
            answers.producer = Producer(self, submits)
            await loop.create_connection(lambda: answers.producer, home.host, home.port)
        except OSError:
            submits.abort()
            raise


class _Answers(asyncio.Protocol):
    """The connection of a producer's submits; the producer reads the answers."""

    producer: Producer

    def data_received(self, data: bytes) -> None:
        """Hand an answer over."""
        self.producer.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- whatever ended it
        """End the producer, too: a message under way has no known outcome."""
        if self.producer.transport is not None:
            self.producer.cut()
