"""Whole messages through a real server on SQLite: prepare, submit, one branch call; generator and sink beside it.

The clock stops when the last branch has been called and the coordinator holds nothing unfinished. Server CPU is
what the kernel accounts to the server's process, its writer thread included.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvloop

from benchmarks.http import sink
from benchmarks.measure import ROUNDS, Result
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.http.client import HttpClient
from twophase.http.outcome import HttpError, HttpResponse

CONNECTIONS = (32, 128)
_MESSAGES = 6_000
_HEADERS = [("content-type", "application/json")]
_TICKS = os.sysconf("SC_CLK_TCK")


class _Generator:
    """`connections` producers, each preparing and submitting one message after the other."""

    def __init__(self, client: HttpClient, server: str, branch: str, messages: int) -> None:
        self._client = client
        self._api = f"{server}/api/dtmsvr/"
        self._branch = branch
        self._left = messages
        self._running = 0
        self._done = asyncio.get_running_loop().create_future()

    async def run(self, connections: int) -> None:
        """Return when every message has been submitted."""
        self._running = connections
        for _ in range(connections):
            self._prepare()
        await self._done

    def _prepare(self) -> None:
        if self._left == 0:
            self._running -= 1
            if self._running == 0:
                self._done.set_result(None)
            return
        self._left -= 1
        body = msgspec.json.encode(
            {
                "gid": make_gid(time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES)),
                "trans_type": "msg",
                "steps": [{"action": self._branch}],
                "payloads": ['{"account":"B","amount":30}'],
                "query_prepared": "http://127.0.0.1:9/check",
            }
        )
        self._send("prepare", body, lambda: self._send("submit", body, self._prepare))

    def _send(self, route: str, body: bytes, then: object) -> None:
        def on_done(outcome: HttpResponse | HttpError) -> None:
            if isinstance(outcome, HttpError) or outcome.status != 200:
                if not self._done.done():
                    self._done.set_exception(RuntimeError(f"{route}: {outcome!r}"))
                return
            assert callable(then)
            then()

        self._client.request("POST", self._api + route, _HEADERS, body, 30_000, on_done)


@contextlib.contextmanager
def _server(folder: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "twophase", "server", "--http-port", "0", "--log-level", "error"]
    store = f"sqlite:///{Path(folder) / 'bench.db'}"
    with subprocess.Popen([*command, "--store", store], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(word for word in process.stdout.readline().split() if word.startswith("http")), process.pid
        finally:
            process.terminate()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _unfinished(folder: str) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{folder}/bench.db?mode=ro", uri=True)) as connection:
        count: int = connection.execute("select count(*) from message").fetchone()[0]
        return count


async def _round(folder: str, server: str, pid: int, branch: str, connections: int) -> tuple[float, float]:
    client = HttpClient(connections_per_host=connections)
    try:
        wall, cpu = time.perf_counter(), _cpu_s(pid)
        await _Generator(client, server, branch, _MESSAGES).run(connections)
        while _unfinished(folder):
            await asyncio.sleep(0.005)
        return time.perf_counter() - wall, _cpu_s(pid) - cpu
    finally:
        await client.close()


async def _measure(folder: str, server: str, pid: int, branch: str) -> list[Result]:
    measured = []
    for connections in CONNECTIONS:
        rounds = [await _round(folder, server, pid, branch, connections) for _ in range(ROUNDS + 1)][1:]
        wall = tuple(one[0] / _MESSAGES * 1e6 for one in rounds)
        cpu = tuple(one[1] / _MESSAGES * 1e6 for one in rounds)
        measured.append(Result(f"whole message, {connections} connections, elapsed", wall))
        measured.append(Result(f"whole message, {connections} connections, CPU of the server", cpu))
    return measured


def results() -> Iterator[Result]:
    """All measurements of this page."""
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder, sink() as branch, _server(folder) as server:
        url, pid = server
        yield from uvloop.run(_measure(folder, url, pid, branch))
