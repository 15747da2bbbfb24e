"""CPU of the SDK for prepare and submit.

There is no database, and the server answers at once. The calls are the SDK's own `prepare` and `submit`: sync on one
thread and on several, async several at a time. The account is that of this process, with the kernel's work for its
sockets.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.scenarios.figure import Figure, Stage, play
from benchmarks.servers.started import null_server
from twophase import AsyncClient, AsyncMessage, Client, Message

MESSAGES: Final = 4000
_AT_A_TIME: Final = 32
_THREADS: Final = (8, 32)
_ASYNC_BAR_US: Final = 110.0
_SYNC_BAR_US: Final = 200.0
_WARM_UP: Final = 200
_PAYLOAD: Final = {"gid": "B", "trans_type": "msg"}
_CHECK: Final = "http://127.0.0.1:9/check"


def play_sdk(stage: Stage) -> list[Figure]:
    """Play the scenario of the module."""
    messages = stage.size or MESSAGES
    with null_server() as server:
        stage.tell(f"{messages:,} messages by the async client, {_AT_A_TIME} at a time")
        by_async = play(_async_us(server.url, messages))
        stage.tell(f"{messages:,} messages by the sync client")
        by_sync = _sync_us(server.url, messages)
        by_threads = []
        for threads in _THREADS:
            stage.tell(f"{messages:,} messages by the sync client, on {threads} threads")
            by_threads.append(_threads_us(server.url, messages, threads))
    return [
        Figure(f"SDK, async, {_AT_A_TIME} at a time: CPU of prepare + submit", by_async, "µs a message", _ASYNC_BAR_US),
        Figure("SDK, sync: CPU of prepare + submit", by_sync, "µs a message", _SYNC_BAR_US),
        *(
            Figure(f"SDK, sync, {threads} threads: CPU of prepare + submit", us, "µs a message", _SYNC_BAR_US)
            for threads, us in zip(_THREADS, by_threads, strict=True)
        ),
    ]


async def _async_us(url: str, messages: int) -> float:
    branch = _branch(url)
    async with AsyncClient(url) as coordinator:

        async def work(number: int) -> None:
            for _ in range(number):
                message = AsyncMessage(coordinator).add(branch, _PAYLOAD)
                await message.prepare(_CHECK)
                await message.submit()

        await asyncio.gather(*(work(_WARM_UP // _AT_A_TIME) for _ in range(_AT_A_TIME)))
        started_s = time.process_time()
        await asyncio.gather(*(work(messages // _AT_A_TIME) for _ in range(_AT_A_TIME)))
        return (time.process_time() - started_s) / (messages // _AT_A_TIME * _AT_A_TIME) * 1e6


def _sync_us(url: str, messages: int) -> float:
    branch = _branch(url)
    with Client(url) as coordinator:
        started_s = 0.0
        for number in range(_WARM_UP + messages):
            if number == _WARM_UP:
                started_s = time.process_time()
            message = Message(coordinator).add(branch, _PAYLOAD)
            message.prepare(_CHECK)
            message.submit()
        return (time.process_time() - started_s) / messages * 1e6


def _threads_us(url: str, messages: int, threads: int) -> float:
    branch = _branch(url)
    with Client(url) as coordinator, ThreadPoolExecutor(threads) as pool:

        def work(number: int) -> None:
            for _ in range(number):
                message = Message(coordinator).add(branch, _PAYLOAD)
                message.prepare(_CHECK)
                message.submit()

        def play_round(number: int) -> None:
            for ended in [pool.submit(work, number) for _ in range(threads)]:
                ended.result()

        play_round(max(1, _WARM_UP // threads))
        started_s = time.process_time()
        play_round(max(1, messages // threads))
        return (time.process_time() - started_s) / (max(1, messages // threads) * threads) * 1e6


def _branch(url: str) -> str:
    """Return a branch outside this process: the server's own `abort`.

    The CPU of the branch must not be counted.
    """
    return f"{url}/api/dtmsvr/abort"
