"""The rig and the two nodes, started and stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.unit.coordinator.nodes import Nodes
from tests.unit.coordinator.rig import Rig
from tests.unit.coordinator.shared import Shared
from twophase.coordinator.settings import CoordinatorSettings
from twophase.testing.clock import VirtualClock


@pytest.fixture
async def make_rig(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Rig]]]:
    rigs: list[Rig] = []

    async def make(settings: CoordinatorSettings | None = None) -> Rig:
        rig = Rig(tmp_path, settings)
        await rig.coordinator.start()
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        rig.store.open.set()
        await rig.coordinator.stop()


@pytest.fixture
async def rig(make_rig: Callable[..., Awaitable[Rig]]) -> Rig:
    return await make_rig()


@pytest.fixture(params=[pytest.param(None, marks=pytest.mark.postgres, id="postgres")])
async def nodes(postgres_database: Database) -> AsyncIterator[Nodes]:
    clock = VirtualClock()
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
