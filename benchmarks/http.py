"""The cost of one outgoing call on a kept connection.

The server is another process. The cost is shown by the number of concurrent calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import uvloop

from benchmarks.measure import ROUNDS, Result
from benchmarks.servers.started import null_server
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpResponse

CONCURRENCIES = (1, 16, 64)
_CALLS = 20_000
_HEADERS = [("content-type", "application/json")]
_BODY = b'{"gid":"B","trans_type":"msg"}'


async def _round(client: HttpClient, url: str, calls: int, concurrency: int) -> tuple[float, float]:
    """Return wall and CPU seconds of `calls` calls, `concurrency` at a time."""
    finished = asyncio.get_running_loop().create_future()
    started, ended = 0, 0

    def call() -> None:
        nonlocal started
        started += 1
        client.request("POST", url, _HEADERS, _BODY, 5_000, on_done)

    def on_done(outcome: HttpResponse | HttpError) -> None:
        nonlocal ended
        ended += 1
        if isinstance(outcome, HttpError):
            if not finished.done():
                finished.set_exception(outcome)
        elif started < calls:
            call()
        elif ended == calls:
            finished.set_result(None)

    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(concurrency):
        call()
    await finished
    return time.perf_counter() - wall, time.process_time() - cpu


async def _measure(url: str, concurrency: int) -> tuple[Result, Result]:
    client = HttpClient()
    calls = _CALLS if concurrency > 1 else _CALLS // 5
    try:
        rounds = [await _round(client, url, calls, concurrency) for _ in range(ROUNDS + 1)][1:]
    finally:
        await client.close()
    wall = tuple(one[0] / calls * 1e6 for one in rounds)
    cpu = tuple(one[1] / calls * 1e6 for one in rounds)
    return (
        Result(f"HTTP client: a call, {concurrency} at once, elapsed", wall),
        Result(f"HTTP client: a call, {concurrency} at once, CPU of the client", cpu),
    )


def results() -> Iterator[Result]:
    """Yield all measurements of this module."""
    with null_server() as receiver:
        url = f"{receiver.url}/api/dtmsvr/abort"
        for concurrency in CONCURRENCIES:
            yield from uvloop.run(_measure(url, concurrency))
