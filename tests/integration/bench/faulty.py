"""A server of the dtm wire with planted faults.

It accepts every request, and then does not do what it promised. Against it the benchmark must find exactly the planted
faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from twophase.http_client.client import HttpClient

_YES = b'{"dtm_result":"SUCCESS"}'


class Request(msgspec.Struct):
    """The parts of a prepare or submit that matter here."""

    gid: str
    steps: list[dict[str, str]]
    payloads: list[str]


class Faults(msgspec.Struct):
    """The planted faults.

    `calls` returns how often the branch of the n-th submit is called; `early` calls it at prepare already.
    """

    calls: Callable[[int], int] = lambda _number: 1
    early: bool = False
    refuse: Callable[[int], bool] = lambda _number: False
    """Return whether the n-th request gets 409 with status 200's dtm_result, or 500."""
    stall: asyncio.Event | None = None
    """While cleared, requests wait for it."""
    stall_from: int = 0
    """The request that begins a stall of `stall_s`; 0 for none."""
    stall_s: float = 0.0
    split: bool = False
    """Answers leave in two writes."""
    answer_s: float = 0.0
    """The duration of each answer."""


class FaultyServer:
    """See the module."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.submits = 0
        self.arrived = 0
        self.requests = 0
        self.client = HttpClient(connections_per_host=64)
        self.tasks: set[asyncio.Task[None]] = set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                body = await reader.readexactly(length)
                await self.answer(head.split()[1].decode(), msgspec.json.decode(body, type=Request), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and call what it asks for as often as was ordered."""
        faults = self.faults
        self.arrived += 1
        if faults.stall is not None:
            if self.arrived == faults.stall_from:
                faults.stall.clear()
                asyncio.get_running_loop().call_later(faults.stall_s, faults.stall.set)
            await faults.stall.wait()
        if faults.answer_s:
            await asyncio.sleep(faults.answer_s)
        self.requests += 1
        if faults.refuse(self.requests):
            body = b'{"dtm_result":"FAILURE","message":"planted FAILURE"}'
            writer.write(b"HTTP/1.1 409 Conflict\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        if path.endswith("/submit"):
            self.submits += 1
            for _ in range(faults.calls(self.submits)):
                self.call(request)
        elif faults.early:
            await self._call(request.steps[0]["action"], request.payloads[0].encode())
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_YES)
        if faults.split:
            writer.write(head[:20])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(head[20:] + _YES)
        else:
            writer.write(head + _YES)

    def call(self, request: Request) -> None:
        """Call every branch once."""
        for index, (step, payload) in enumerate(zip(request.steps, request.payloads, strict=True), 1):
            url = f"{step['action']}?branch_id={index:02}&gid={request.gid}&op=action&trans_type=msg"
            task = asyncio.ensure_future(self._call(url, payload.encode()))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _call(self, url: str, payload: bytes) -> None:
        await self.client.fetch("POST", url, (("Content-Type", "application/json"),), payload, timeout_ms=60_000)


@asynccontextmanager
async def faulty_server(faults: Faults) -> AsyncIterator[str]:
    """A running one; its address."""
    server = FaultyServer(faults)
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/api/dtmsvr"
    finally:
        listener.close()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await server.client.close()
