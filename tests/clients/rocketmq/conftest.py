"""A server, and programs around an official client, for one test each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from tests.clients.rocketmq.forwarding import Forwarding, forwarding
from tests.clients.rocketmq.languages import LANGUAGES, PART, CannotBuild, Command
from tests.clients.rocketmq.programs import Program, program
from tests.clients.rocketmq.serving import Serving, serving
from tests.servers.missing import not_tested

Start = Callable[[], Awaitable[Program]]
Proxied = tuple[Program, Forwarding]
TOPIC: Final = "orders"


@pytest.fixture(params=LANGUAGES, scope="session")
def command(request: pytest.FixtureRequest) -> Command:
    """Return the command of a program around one of the official clients."""
    try:
        made: Command = LANGUAGES[request.param]()
    except CannotBuild as error:
        not_tested(PART, f"{request.param}: {error}")
    return made


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A server, which `start` starts."""
    async with serving(tmp_path) as one:
        yield one


@pytest.fixture
async def start(server: Serving, command: Command, tmp_path: Path) -> AsyncIterator[Start]:
    """Return what starts a program, and the server before the first one."""
    async with contextlib.AsyncExitStack() as stack:

        async def started() -> Program:
            if not server.address:
                await server.start()
            return await stack.enter_async_context(program(command, server.address, tmp_path))

        yield started


@pytest.fixture
async def proxied(server: Serving, command: Command, tmp_path: Path) -> AsyncIterator[Proxied]:
    """Yield a program whose clients reach the server through a proxy, and the proxy.

    Its client `producer` answers "commit".
    """
    await server.start()
    async with forwarding(server) as proxy, program(command, proxy.address, tmp_path) as one:
        await one.do("producer", name="producer", topics=[TOPIC])
        yield one, proxy
