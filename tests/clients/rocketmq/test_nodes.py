"""Two servers on one PostgreSQL.

Official clients know the address of one of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import psycopg
import pytest

from tests.clients.rocketmq.languages import Command
from tests.clients.rocketmq.programs import PATIENCE_S, Failed, program
from tests.clients.rocketmq.serving import Serving, serving
from tests.servers.database import Database
from tests.support.waiting import until
from twophase.rocketmq_wire.descriptors import SERVICE, kind

LEASE_MS = 3_000
BEFORE = [f"before-{number}" for number in range(20)]
HALVES = [f"half-{number}" for number in range(6)]


async def owner_of(at: Serving, topic: str) -> str:
    """Return the address of the owner of a topic's queues, as a route names it."""
    request = kind("QueryRouteRequest")(topic=kind("Resource")(name=topic)).SerializeToString()
    async with grpc.aio.insecure_channel(at.address) as channel:
        call: Any = channel.unary_unary(
            f"/{SERVICE}/QueryRoute", response_deserializer=kind("QueryRouteResponse").FromString
        )
        route = await call(request, metadata=[("x-mq-client-id", "look")], timeout=PATIENCE_S)
    address = route.message_queues[0].broker.endpoints.addresses[0]
    return f"{address.host}:{address.port}"


@pytest.fixture
async def nodes(postgres_database: Database, tmp_path: Path) -> AsyncIterator[tuple[Serving, Serving]]:
    """Two servers on one store, which know each other."""
    store = ("--store", postgres_database.dsn, "--set", f"lease_ms={LEASE_MS}")
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            found.append(await stack.enter_async_context(serving(folder, *store)))
            await found[-1].start()
        yield found[0], found[1]


async def topic_at(owner: Serving, *nodes: Serving) -> str:
    """Return a topic of this owner, once all nodes say so."""

    async def found() -> str:
        for topic in (f"orders-{number}" for number in range(16)):
            if {await owner_of(node, topic) for node in nodes} == {owner.address}:
                return topic
        return ""

    topic: str = await until(found, PATIENCE_S)
    return topic


async def until_done(database: Database, topic: str, count: int) -> None:
    """Wait until the group has done this many messages of a topic."""
    query = "select from queue_progress where topic = %s and next_number >= %s"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        await until(lambda: connection.execute(query, (topic, count)).fetchall(), 2 * PATIENCE_S)


async def term_of(database: Database, topic: str, behind: int = 0) -> int:
    """Return the term of a topic's owner, once it is a later one than `behind`."""
    query = "select term from queue_owner where topic = %s and term > %s"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        row = await until(lambda: connection.execute(query, (topic, behind)).fetchone(), 2 * PATIENCE_S)
    return int(row[0])


@pytest.mark.postgres
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_when_the_owner_is_killed_its_consumers_and_its_halves_go_on_at_the_other_node(
    nodes: tuple[Serving, Serving], command: Command, postgres_database: Database, tmp_path: Path
) -> None:
    owner, other = nodes
    topic = await topic_at(owner, owner, other)
    async with program(command, other.address, tmp_path) as client:
        await client.do("producer", name="producer", topics=[topic], answer="unknown")
        await client.do("push", name="consumer", group="billing", topic=topic)
        for body in BEFORE:
            await client.do("send", name="producer", topic=topic, body=body)
        await client.until("consumed", "consumer", len(BEFORE))
        await until_done(postgres_database, topic, len(BEFORE))
        for body in HALVES:  # some at each node
            await client.do("transact", name="producer", topic=topic, body=body, end=[])
        await owner.kill()
        await client.do("answer", name="producer", answer="commit")

        await client.until("consumed", "consumer", len(BEFORE) + len(HALVES))
        if command.language == "go":
            await owner.start()  # while this client dials an address that has gone, its acknowledgements time out
        await until_done(postgres_database, topic, len(BEFORE) + len(HALVES))
        consumed = [one["body"] for one in client.heard("consumed", "consumer")]
        assert sorted(consumed[: len(BEFORE)]) == sorted(BEFORE), "what was done before comes once"
        assert sorted(set(consumed)) == sorted(BEFORE + HALVES)
        assert not set(consumed[len(BEFORE) :]) & set(BEFORE)


@pytest.mark.postgres
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", ["python"], indirect=True)
async def test_a_consumer_follows_its_topic_to_a_node_that_joins(
    nodes: tuple[Serving, Serving], command: Command, postgres_database: Database, tmp_path: Path
) -> None:
    joins, first = nodes
    topic = await topic_at(joins, joins, first)
    await joins.kill()
    async with program(command, first.address, tmp_path) as client:

        async def is_first() -> bool:
            return await owner_of(first, topic) == first.address

        await until(is_first, PATIENCE_S)
        await client.do("producer", name="producer", topics=[topic])
        await client.do("push", name="consumer", group="billing", topic=topic)
        for body in BEFORE:
            await client.do("send", name="producer", topic=topic, body=body)
        await client.until("consumed", "consumer", len(BEFORE))
        await until_done(postgres_database, topic, len(BEFORE))
        before = await term_of(postgres_database, topic)
        await joins.start()
        await term_of(postgres_database, topic, behind=before)
        await client.do("send", name="producer", topic=topic, body="after")

        await client.until("consumed", "consumer", len(BEFORE) + 1)
        await until_done(postgres_database, topic, len(BEFORE) + 1)
        assert sorted(one["body"] for one in client.heard("consumed", "consumer")) == sorted([*BEFORE, "after"])


@pytest.mark.postgres
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_consumers_and_producers_go_on_when_both_nodes_come_back_in_the_other_slot(
    nodes: tuple[Serving, Serving], command: Command, postgres_database: Database, tmp_path: Path
) -> None:
    """Node.js's client goes on to ask at the address that a broker's name had first."""
    first, second = nodes
    topic = await topic_at(first, first, second)
    async with program(command, second.address, tmp_path) as client:
        await client.do("producer", name="producer", topics=[topic], answer="commit")
        await client.do("push", name="consumer", group="billing", topic=topic)
        for body in BEFORE:
            await client.do("send", name="producer", topic=topic, body=body)
        await client.until("consumed", "consumer", len(BEFORE))
        await until_done(postgres_database, topic, len(BEFORE))
        await first.terminate()
        await second.terminate()
        await second.start()
        await first.start()

        async def is_second() -> bool:
            return {await owner_of(node, topic) for node in nodes} == {second.address}

        end = ["commit"] if command.language == "go" else []  # this client opens a broken stream again after minutes

        async def is_sent() -> bool:
            with contextlib.suppress(Failed):  # a client may wait before it dials again
                await client.do("transact", name="producer", topic=topic, body="half", end=end)
                return True
            return False

        await until(is_second, PATIENCE_S)
        await until(is_sent, PATIENCE_S)
        await client.do("send", name="producer", topic=topic, body="after")
        await client.until("consumed", "consumer", len(BEFORE) + 2)
        await until_done(postgres_database, topic, len(BEFORE) + 2)
        consumed = [one["body"] for one in client.heard("consumed", "consumer")]
        assert sorted(consumed) == sorted([*BEFORE, "after", "half"])
