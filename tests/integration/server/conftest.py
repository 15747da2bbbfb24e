"""Fixtures of the server's tests: uvloop as in production, and a listening port.

Behind the port stands a fake coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.support.fake_coordinator import Wire, listening


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The server runs on uvloop, so its tests do."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with listening() as one:
        yield one
