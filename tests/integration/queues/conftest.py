"""A server for a test of consumers and transactional producers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.queue_server import QueueServer, queue_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[QueueServer]:
    async with queue_server(tmp_path) as server:
        yield server
