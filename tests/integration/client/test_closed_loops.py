"""Clients of event loops that are closed without their asynchronous generators."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.recording_coordinator import RecordingCoordinator, unused_url
from tests.support.waiting import until
from twophase.client.transport.aio import GROUPED_BYTES_MAX, AsyncTransport
from twophase.client.transport.grpc import AsyncGrpcTransport
from twophase.client.transport.wire import Disconnected, Operation

JOBS = 20
BODY = b'{"gid":"g"}'
LONG_BODY = b'{"gid":"g","payload":"%b"}' % (b"x" * GROUPED_BYTES_MAX)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Collect no garbage during the test: a large program does so rarely."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def _run(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a job in an event loop of its own, and end the loop by `close` alone."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(job())
    loop.close()


def _sockets() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += str(link.readlink()).startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            continue
    return count


# asyncio warns of a transport whose loop is closed, also when its socket was closed.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("no_collection")
@pytest.mark.skipif(sys.platform != "linux", reason="counts sockets in /proc")
async def test_a_loop_for_each_job_keeps_the_connections_of_the_last_alone(coordinator: RecordingCoordinator) -> None:
    transport = AsyncTransport(coordinator.url)

    async def job() -> None:
        for body in (BODY, LONG_BODY):  # on the connection for requests of the same moment, and alone
            await transport.send(Operation.PREPARE, body, 60_000)

    await asyncio.to_thread(_run, job)
    before = _sockets()
    for _ in range(JOBS):
        await asyncio.to_thread(_run, job)
    await until(lambda: _sockets() <= before + 2)
    assert coordinator.connections >= 2 * JOBS
    assert len(transport._clients) == 1

    async def end() -> None:
        await job()
        await transport.close()

    await asyncio.to_thread(_run, end)


@pytest.mark.usefixtures("no_collection")
def test_a_loop_for_each_job_keeps_the_grpc_channel_of_the_last_alone() -> None:
    transport = AsyncGrpcTransport(unused_url().replace("http", "grpc"))

    async def job() -> None:
        with pytest.raises(Disconnected):
            await transport.send(Operation.SUBMIT, BODY, 60_000)

    for _ in range(3):
        _run(job)
    assert len(transport._channels) == 1
    asyncio.run(job())
    assert len(transport._channels) == 0
