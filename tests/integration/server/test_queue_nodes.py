"""Acts of consumers where two servers share a store.

The owner of the topic decides, and the other names it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.server.running import Running, running
from tests.servers.database import Database
from tests.support.queue_api import QueueApi, queue_api_of
from tests.support.rocketmq_wire import GROUP, TOPIC, Wire, resource
from tests.support.waiting import until
from twophase import AsyncClient
from twophase.client.queues.requests import QueueRequests
from twophase.client.transport.wire import Disconnected, HttpAnswer
from twophase.coordinator.queues import Servers
from twophase.core.errors import QueuesElsewhere, StoreUnavailable
from twophase.core.queue_api import ACK_PATH, DEAD_LETTER_PATH, EXTEND_PATH, GIVE_BACK_PATH, NACK_PATH, RECEIVE_PATH
from twophase.queues import AsyncConsumer
from twophase.rocketmq_wire.codes import Code

pytestmark = pytest.mark.postgres
PATIENCE_S = 60
AWAY = HttpAnswer(503, msgspec.json.encode({"message": "away", "code": StoreUnavailable.code}))


class Two:
    """The server that owns the topic, and the other."""

    def __init__(self, owner: Running, other: Running) -> None:
        self.owner, self.other = owner, other
        self.owner_url = f"http://127.0.0.1:{owner.port}"


@pytest.fixture
async def two(tmp_path: Path, postgres_database: Database) -> AsyncIterator[Two]:
    settings: dict[str, Any] = {"store": postgres_database.dsn, "rocketmq_port": 0, "rocketmq_address": "127.0.0.1"}
    async with running(tmp_path, **settings) as one, running(tmp_path, **settings) as another:

        async def know_each_other() -> list[Servers]:
            seen = [await each.server.coordinator.queues.servers("", TOPIC) for each in (one, another)]
            return seen if all(servers.others for servers in seen) else []

        (seen, _) = await until(know_each_other)
        owned = seen.owner is not None and seen.owner.is_self
        yield Two(one, another) if owned else Two(another, one)


async def refused(api: QueueApi, path: str, **fields: Any) -> tuple[int, str, str]:
    """Return the status of a refusal, its code, and the URL that it names."""
    status, answer = await api.ask(path, group=GROUP, topic=TOPIC, **fields)
    return status, answer.get("code", ""), answer.get("url", "")


async def test_an_act_at_another_node_names_the_owner_and_changes_nothing(two: Two) -> None:
    async with queue_api_of(two.owner.port) as at_owner, queue_api_of(two.other.port) as api:
        await at_owner.send(f"queue://{TOPIC}?id=1")
        (one,) = await at_owner.receive(lease_ms=60_000, wait_ms=60_000)
        receipt, elsewhere = one["receipt"], (503, QueuesElsewhere.code, two.owner_url)

        assert await refused(api, RECEIVE_PATH, client="me", wait_ms=0) == elsewhere
        for path in (ACK_PATH, GIVE_BACK_PATH):
            assert await refused(api, path, receipts=[receipt]) == elsewhere
        assert await refused(api, EXTEND_PATH, receipt=receipt, lease_ms=10_000) == elsewhere
        for path in (NACK_PATH, DEAD_LETTER_PATH):
            assert await refused(api, path, receipt=receipt) == elsewhere

        wire = Wire(_address(two.other))
        try:
            names = {"group": resource(GROUP), "topic": resource(TOPIC), "receipt_handle": receipt}
            entry = {"message_id": "1", "receipt_handle": receipt}
            done = await wire.ask("AckMessage", group=resource(GROUP), topic=resource(TOPIC), entries=[entry])
            assert done.entries[0].status.code == Code.HA_NOT_AVAILABLE
            assert await wire.code("ChangeInvisibleDuration", **names) == Code.HA_NOT_AVAILABLE
            assert await wire.code("ForwardMessageToDeadLetterQueue", **names) == Code.HA_NOT_AVAILABLE
        finally:
            await wire.close()

        assert await at_owner.outcomes(ACK_PATH, receipt) == [""]


def _address(server: Running) -> str:
    (url,) = [url for url in server.server.urls if url.startswith("rocketmq://")]
    return url.removeprefix("rocketmq://")


@pytest.mark.parametrize("failure", [Disconnected("broken"), AWAY], ids=["broken", "away"])
async def test_acts_reach_the_owner_after_a_request_to_it_has_failed(
    two: Two, failure: Exception | HttpAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing: list[str] = []
    send = QueueRequests._send

    async def failing_once(requests: QueueRequests, base: str, path: str, body: bytes, timeout_ms: int) -> HttpAnswer:
        if path in failing and base == two.owner_url:
            failing.remove(path)
            if isinstance(failure, Exception):
                raise failure
            return failure
        return await send(requests, base, path, body, timeout_ms)

    monkeypatch.setattr(QueueRequests, "_send", failing_once)
    async with AsyncClient(f"http://127.0.0.1:{two.other.port}") as client, AsyncConsumer(client, GROUP) as consumer:
        async with queue_api_of(two.other.port) as api:
            await api.send(f"queue://{TOPIC}?id=1")
        (one,) = await consumer.receive(TOPIC, wait=PATIENCE_S)
        failing += [EXTEND_PATH, ACK_PATH]

        assert await consumer.extend(one, 60)
        assert await consumer.ack(one)

        assert failing == []
        assert await consumer.receive(TOPIC, wait=0) == []
