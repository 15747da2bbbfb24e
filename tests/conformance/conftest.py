"""A started store of every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.engines import ENGINES, Engine
from tests.support.items import SetClock
from twophase.stores.base import Store


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    made: Engine = request.param
    return made


@pytest.fixture(autouse=True)
def _server(request: pytest.FixtureRequest) -> None:
    """Start the server that the test's engine needs, wherever the engine comes from."""
    callspec = getattr(request.node, "callspec", None)
    engine = callspec.params.get("engine") if callspec else None
    if engine is not None and engine.server:
        request.getfixturevalue(engine.server)


@pytest.fixture
def clock() -> SetClock:
    """The store's clock."""
    return SetClock()


@pytest.fixture
async def store(engine: Engine, tmp_path: Path, clock: SetClock) -> AsyncIterator[Store]:
    """A started, empty store."""
    made = engine.make(tmp_path, clock)
    await made.start()
    yield made
    await made.stop()
