"""The port for RocketMQ's clients, with queues in memory.

The official clients have tests of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.identities import write
from tests.support.rocketmq_port import Serving, serving
from tests.support.rocketmq_wire import (
    Wire,
)
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import Scope


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    async with serving(check_s=0.05) as one:
        yield one


@pytest.fixture
async def wire(server: Serving) -> AsyncIterator[Wire]:
    one = Wire(server)
    yield one
    await one.close()


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Serving]:
    """A port whose clients have tokens: one for each scope, and a second producer."""
    for scope in Scope:
        tokens = write(tmp_path, str(scope), [scope])
    write(tmp_path, "other", [Scope.PRODUCE])
    write(tmp_path, "bound", [Scope.PRODUCE], destinations=("queue://orders",))
    async with serving(Gate(tokens), check_s=0.05) as one:
        yield one
