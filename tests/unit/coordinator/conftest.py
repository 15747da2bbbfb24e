"""The rig, started and stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.coordinator.rig import Rig
from twophase.coordinator.settings import CoordinatorSettings


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
