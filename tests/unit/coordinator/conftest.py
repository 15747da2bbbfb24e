"""The harness and the two nodes, started and stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.unit.coordinator.harness import Harness, StillClock
from tests.unit.coordinator.nodes import Nodes
from tests.unit.coordinator.shared_store import Shared
from twophase.coordinator.settings import CoordinatorSettings


@pytest.fixture
async def make_harness(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Harness]]]:
    harnesses: list[Harness] = []

    async def make(settings: CoordinatorSettings | None = None) -> Harness:
        harness = Harness(tmp_path, settings)
        await harness.coordinator.start()
        harnesses.append(harness)
        return harness

    yield make
    for harness in harnesses:
        harness.store.open.set()
        await harness.coordinator.stop()


@pytest.fixture
async def harness(make_harness: Callable[..., Awaitable[Harness]]) -> Harness:
    return await make_harness()


@pytest.fixture(params=[pytest.param(None, marks=pytest.mark.postgres, id="postgres")])
async def nodes(postgres_database: Database) -> AsyncIterator[Nodes]:
    clock = StillClock()
    clock.runs = True
    shared = Shared(postgres_database, clock)
    both = Nodes(shared, clock)
    await shared.start()
    await both.a.coordinator.start()
    await both.b.coordinator.start()
    yield both
    for node in (both.a, both.b):
        node.gates.open.set()
        node.gates.answers.set()
        node.gates.cut = False
        await node.coordinator.stop()
    await shared.stop()
