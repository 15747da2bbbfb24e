"""A real `twophase server` process with a port for RocketMQ's clients.

It asks about half messages soon, and has its store in the test's folder.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc.aio
import msgspec

from tests.support.fake_coordinator import get
from tests.support.items import MADE
from tests.support.server_process import ServerProcess
from twophase.core.hooks import WallClock
from twophase.core.queue_operating import ManyHalves, OneGroup, OneTopic, ShownHalf
from twophase.rocketmq_wire.descriptors import SERVICE, kind
from twophase.server.stores import open_store
from twophase.stores.queue_rows import Definition

Shown = TypeVar("Shown")
_PATIENCE_S: Final = 60.0
_SETTINGS: Final = {
    "TWOPHASE_TIMEOUT_TO_FAIL_MS": "1000",
    "TWOPHASE_CHECK_BACK_FIRST_MS": "200",
    "TWOPHASE_CHECK_BACK_CAP_MS": "500",
    "TWOPHASE_PRODUCER_ANSWER_MS": "2000",
    "TWOPHASE_CONNECTIONS_PER_ADDRESS_PERCENT": "100",
}


class Serving:
    """A server, which a test may end at once and start again at its address.

    Arguments:
        folder: the place of the store.
        arguments: of the server.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.address = ""
        self._folder = folder
        self._arguments = arguments
        self._looks = itertools.count()
        self._process: ServerProcess | None = None

    async def start(self) -> None:
        """Start it, at the same address as before."""
        port = self.address.rpartition(":")[2] or "0"
        more = {"TWOPHASE_ROCKETMQ_PORT": port, "TWOPHASE_GRPC_PORT": "off"}
        self._process = await ServerProcess.spawn(
            "--port", "0", *self._arguments, environment=_SETTINGS | more, cwd=self._folder
        )
        await self._process.until_ready()
        found = re.search(r"rocketmqs?://(\S+)", self._process.ready_line)
        assert found is not None, self._process.ready_line
        self.address = found[1]

    async def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            await self._process.kill()
            self._process = None

    async def terminate(self) -> None:
        """End it by SIGTERM: it gives its node slot back."""
        if self._process is not None:
            await self._process.terminate()
            self._process = None

    async def define(self, what: str, name: str, **settings: object) -> None:
        """Give a topic or a group other settings than those of its first use.

        It is done before the start.
        """
        assert self._process is None, "the server owns its store"
        store = open_store(f"sqlite:///{self._folder / 'twophase.db'}", WallClock(), lease_ms=10_000)
        await store.start()
        text = msgspec.json.encode(settings).decode()
        await store.define_queue(Definition("topic" if what == "topic" else "group", name, text), MADE)
        await store.stop()

    async def queues(self, topic: str) -> set[int]:
        """Return the queues of a topic that have messages, as operators see them."""
        parts = (await self._shown(f"queue-topics/{topic}", OneTopic)).topic.parts
        return {part.queue for part in parts if part.first < part.end}

    async def halves(self) -> dict[str, ShownHalf]:
        """Return the half messages that are not decided, by transaction id."""
        return {one.gid: one for one in (await self._shown("halves", ManyHalves)).halves}

    async def undone(self, group: str) -> int:
        """Return the number of messages that a group has not done."""
        return sum(one.lag for one in (await self._shown(f"groups/{group}", OneGroup)).group.lags)

    def stored_as_done(self, group: str, topic: str) -> int:
        """Return how many messages of a topic a group has done, by the store.

        They are counted from the oldest on. What memory alone knows is lost with the process.
        """
        query = "select sum(next_number) from queue_progress where consumers = ? and topic = ?"
        with contextlib.closing(sqlite3.connect(f"file:{self._folder / 'twophase.db'}?mode=ro", uri=True)) as store:
            (done,) = store.execute(query, (group, topic)).fetchone()
        return done or 0

    async def state(self, transaction_id: str) -> str | None:
        """Return the state of a message, as a query shows it."""
        assert self._process is not None, "it runs"
        return await self._process.state(transaction_id)

    async def stop(self, transaction_id: str) -> None:
        """Stop a message, as an operator does."""
        assert self._process is not None, "it runs"
        answer = await self._process.post("forceStop", gid=transaction_id)
        assert answer.status == HTTPStatus.OK, answer

    async def _shown(self, what: str, kind: type[Shown]) -> Shown:
        """Return what operators see."""
        assert self._process is not None, "it runs"
        answer = await self._process.ask(get(f"/api/twophase/{what}"))
        assert answer.status == HTTPStatus.OK, answer
        return msgspec.json.decode(answer.body, type=kind)

    async def bodies(self, topic: str, token: str = "") -> list[str]:
        """Return the bodies in a topic's queue, in order, as a group of its own sees them."""
        resource, duration = kind("Resource"), kind("google.protobuf.Duration")
        request = kind("ReceiveMessageRequest")(
            group=resource(name=f"look-{next(self._looks)}"),
            message_queue=kind("MessageQueue")(topic=resource(name=topic)),
            batch_size=32,
            invisible_duration=duration(seconds=10),
            long_polling_timeout=duration(seconds=0),
        )
        async with grpc.aio.insecure_channel(self.address) as channel:
            call: Any = channel.unary_stream(
                f"/{SERVICE}/ReceiveMessage", response_deserializer=kind("ReceiveMessageResponse").FromString
            )
            metadata = [("x-mq-client-id", "look"), ("authorization", f"Bearer {token}")]
            parts = call(request.SerializeToString(), metadata=metadata, timeout=_PATIENCE_S)
            return [part.message.body.decode() async for part in parts if part.HasField("message")]


@contextlib.asynccontextmanager
async def serving(folder: Path, *arguments: str) -> AsyncIterator[Serving]:
    """Run a server for the block's time.

    It is started when the test asks for it first.
    """
    one = Serving(folder, *arguments)
    try:
        yield one
    finally:
        await one.kill()
