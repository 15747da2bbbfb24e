"""CPU time of one call through `HttpClient`, apart from the server's: `python tests/bench/bench_http_client.py`.

The sink is another process, so `resource` counts the client alone. Prints min / median / max of several rounds for
some numbers of calls in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from twophase.http import HttpClient, HttpResponse, Outcome

_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 25\r\n"
    b'date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n{"dtm_result":"SUCCESS"}\r\n'
)
_BODY = b'{"account":"B","amount":30,"note":"' + b"x" * 150 + b'"}'


class _Sink(asyncio.Protocol):
    """Answers every read as if it were one request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        self.transport.write(_ANSWER)


def _sink(ready: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Sink, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


async def _round(url: str, calls: int, in_flight: int) -> tuple[float, float]:
    """CPU µs and wall µs a call."""
    client = HttpClient(connections_per_host=in_flight)
    over = asyncio.get_running_loop().create_future()
    headers = (("Content-Type", "application/json"),)
    left = calls
    ended = 0

    def start() -> None:
        nonlocal left
        left -= 1
        query = f"{url}?branch_id=01&gid=tp01hf7yat{left:016d}&op=action&trans_type=msg"
        client.request("POST", query, headers, _BODY, 10_000, on_done)

    def on_done(outcome: Outcome) -> None:
        nonlocal ended
        assert isinstance(outcome, HttpResponse), outcome
        ended += 1
        if left > 0:
            start()
        elif ended == calls:
            over.set_result(None)

    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(in_flight):
        start()
    await over
    after, elapsed = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begun
    await client.close()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu / calls * 1e6, elapsed / calls * 1e6


def _report(run: Callable[[int], tuple[float, float]], in_flight: int, rounds: int) -> None:
    results = [run(in_flight) for _ in range(rounds)]
    cpu = sorted(result[0] for result in results)
    wall = statistics.median(result[1] for result in results)
    print(
        f"in flight {in_flight:4d}: CPU µs/call min {cpu[0]:.2f} median {statistics.median(cpu):.2f} max {cpu[-1]:.2f}"
        f" | wall µs/call median {wall:.2f}"
    )


def main() -> None:
    """Run the rounds and print them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--calls", type=int, default=60_000)
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sink = multiprocessing.get_context("spawn").Process(target=_sink, args=(sender,), daemon=True)
    sink.start()
    url = f"http://127.0.0.1:{receiver.recv()}/transfer-in"
    try:
        for in_flight in (1, 16, 64):
            _report(lambda n: uvloop.run(_round(url, options.calls, n)), in_flight, options.rounds)
    finally:
        sink.terminate()
        sink.join()


if __name__ == "__main__":
    main()
