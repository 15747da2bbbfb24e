"""A port, and programs around an official client, for one test each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.clients.rocketmq.languages import LANGUAGES
from tests.clients.rocketmq.programs import Program, program
from tests.clients.rocketmq.serving import Serving, serving

Start = Callable[[], Awaitable[Program]]


@pytest.fixture(params=LANGUAGES, scope="session")
def command(request: pytest.FixtureRequest) -> list[str]:
    """Return the command of a program around one of the official clients."""
    made: list[str] = LANGUAGES[request.param]()
    return made


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    """A port with queues in memory, which asks about half messages soon."""
    async with serving() as one:
        yield one


@pytest.fixture
async def start(server: Serving, command: list[str], tmp_path: Path) -> AsyncIterator[Start]:
    """Return what starts a program against the port."""
    async with contextlib.AsyncExitStack() as stack:

        async def started() -> Program:
            return await stack.enter_async_context(program(command, server.address, tmp_path))

        yield started
