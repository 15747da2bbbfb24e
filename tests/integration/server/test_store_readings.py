"""However often the server is watched, its store is read once a second."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.fake_coordinator import Response, Wire, get
from tests.support.waiting import until
from twophase.core.errors import StoreUnavailable
from twophase.server.api import recent
from twophase.server.api.recent import FRESH_S


class Watch:
    """The clock of the readings, which stands still until the test sets it on."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    one = Watch()
    monkeypatch.setattr(recent, "time", one)
    return one


async def _flood(wire: Wire, *paths: str) -> list[Response]:
    client = await wire.connect()
    await client.send(b"".join(get(path) for path in paths * 20))
    return await client.responses(20 * len(paths))


async def test_a_flood_of_probes_and_scrapes_reads_the_store_once_a_second(wire: Wire, watch: Watch) -> None:
    wire.coordinator.store_answers.clear()
    floods = [asyncio.create_task(_flood(wire, "/health/ready", "/metrics")) for _ in range(10)]
    await until(lambda: wire.coordinator.readings)
    wire.coordinator.store_answers.set()
    for flood in floods:
        assert {one.status for one in await flood} == {200}
    watch.now_s += FRESH_S
    await _flood(wire, "/health/ready", "/metrics")
    assert len(wire.coordinator.readings) == 1
    watch.now_s += 0.001
    await _flood(wire, "/health/ready", "/metrics")
    assert len(wire.coordinator.readings) == 2


async def test_readiness_tells_a_store_that_fails_and_one_that_works_again_after_a_second(
    wire: Wire, watch: Watch
) -> None:
    client = await wire.connect()

    async def told() -> int:
        return (await client.ask(get("/health/ready"))).status

    assert await told() == 200
    wire.coordinator.store_fault = StoreUnavailable("it is gone.")
    watch.now_s += FRESH_S + 0.001
    assert await told() == 503
    assert {one.status for one in await _flood(wire, "/health/ready")} == {503}
    assert len(wire.coordinator.readings) == 2, "a store that fails is not asked more often"
    wire.coordinator.store_fault = None
    watch.now_s += FRESH_S + 0.001
    assert await told() == 200


async def test_horizons_are_read_once_a_second_and_few_different_ones_at_once(wire: Wire, watch: Watch) -> None:
    coordinator = wire.coordinator
    assert {one.status for one in await _flood(wire, "/api/twophase/horizon?check=a")} == {200}
    assert coordinator.readings == [("horizon", "a", "")]
    coordinator.readings.clear()
    coordinator.store_answers.clear()
    clients = [await wire.connect() for _ in range(20)]
    answers = [
        asyncio.create_task(client.ask(get(f"/api/twophase/horizon?check=b{number}")))
        for number, client in enumerate(clients)
    ]
    await until(lambda: sum(answer.done() for answer in answers) >= 16)
    assert len(coordinator.readings) == 4
    assert b"TP-3001" in next(answer.result().body for answer in answers if answer.done())
    coordinator.store_answers.set()
    assert sorted([(await answer).status for answer in answers]) == [200] * 4 + [503] * 16
    for number in range(40):
        assert (await clients[0].ask(get(f"/api/twophase/horizon?check=c{number}"))).status == 200
    assert len(coordinator.readings) == 44
