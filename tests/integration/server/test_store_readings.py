"""However often the server is watched, its store is read once a second."""

from __future__ import annotations

import asyncio
import time

from tests.support.fake_coordinator import Response, Wire, get
from twophase.core.errors import StoreUnavailable
from twophase.server.api.recent import FRESH_S

_PATIENCE_S = 30.0


async def _flood(wire: Wire, *paths: str) -> list[Response]:
    client = await wire.connect()
    await client.send(b"".join(get(path) for path in paths * 20))
    return await client.responses(20 * len(paths))


async def test_a_flood_of_probes_and_scrapes_reads_the_store_once_a_second(wire: Wire) -> None:
    started_s = time.monotonic()
    wire.coordinator.store_answers.clear()
    floods = [asyncio.create_task(_flood(wire, "/health/ready", "/metrics")) for _ in range(10)]
    async with asyncio.timeout(_PATIENCE_S):
        while not wire.coordinator.readings:
            await asyncio.sleep(0.01)
    wire.coordinator.store_answers.set()
    for flood in floods:
        assert {one.status for one in await flood} == {200}
    assert len(wire.coordinator.readings) <= 1 + (time.monotonic() - started_s) / FRESH_S


async def test_readiness_tells_a_store_that_fails_and_one_that_works_again_within_a_second_or_so(wire: Wire) -> None:
    client = await wire.connect()

    async def told_after_s(status: int) -> float:
        started_s = time.monotonic()
        async with asyncio.timeout(_PATIENCE_S):
            while (await client.ask(get("/health/ready"))).status != status:
                await asyncio.sleep(0.01)
        return time.monotonic() - started_s

    assert await told_after_s(200) < FRESH_S
    wire.coordinator.store_fault = StoreUnavailable("it is gone.")
    assert await told_after_s(503) < FRESH_S + 1
    readings = len(wire.coordinator.readings)
    assert {one.status for one in await _flood(wire, "/health/ready")} == {503}
    assert len(wire.coordinator.readings) <= readings + 2, "a store that fails is not asked more often"
    wire.coordinator.store_fault = None
    assert await told_after_s(200) < FRESH_S + 1


async def test_horizons_are_read_once_a_second_and_few_different_ones_at_once(wire: Wire) -> None:
    coordinator = wire.coordinator
    assert {one.status for one in await _flood(wire, "/api/twophase/horizon?check=a")} == {200}
    assert set(coordinator.readings) == {("horizon", "a", "")}
    assert len(coordinator.readings) <= 3
    coordinator.readings.clear()
    coordinator.store_answers.clear()
    clients = [await wire.connect() for _ in range(20)]
    answers = [
        asyncio.create_task(client.ask(get(f"/api/twophase/horizon?check=b{number}")))
        for number, client in enumerate(clients)
    ]
    async with asyncio.timeout(_PATIENCE_S):
        while sum(answer.done() for answer in answers) < 16:
            await asyncio.sleep(0.01)
    assert len(coordinator.readings) == 4
    assert b"TP-3001" in next(answer.result().body for answer in answers if answer.done())
    coordinator.store_answers.set()
    assert sorted([(await answer).status for answer in answers]) == [200] * 4 + [503] * 16
    for number in range(40):
        assert (await clients[0].ask(get(f"/api/twophase/horizon?check=c{number}"))).status == 200
    assert len(coordinator.readings) == 44
