"""A real `twophase server` process, and a branch service.

The branch service does what the test asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.support.fake_coordinator import Client, Response, get, post
from tests.support.waiting import until

_MAIN = "from twophase.cli.app import main; main()"
_START_S = 60.0
_STOP_S = 60.0
_PATIENCE_S = 60.0
"""Bound that ends a test that hangs."""
_PATIENT: Final = {"TWOPHASE_REQUEST_TIMEOUT_MS": "60000", "TWOPHASE_ALERT_TIMEOUT_MS": "60000"}
"""Time for answers that come late from a busy machine.

Without it a call would be made twice, or fail, for that reason alone. A test of another time names it among its
arguments, which go before.
"""


class ServerProcess:
    """One process; `port` is from its ready line."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.ready_line = ""
        self.port = 0
        self.context: ssl.SSLContext | None = None
        """For requests to a server that speaks TLS."""

    @classmethod
    async def spawn(cls, *arguments: str, environment: dict[str, str] | None = None, cwd: Path) -> ServerProcess:
        """Start the process without waiting."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _MAIN,
                "server",
                *arguments,
                stdout=PIPE,
                stderr=PIPE,
                cwd=cwd,
                env=inherited | _PATIENT | (environment or {}),
            )
        )

    async def until_ready(self) -> None:
        """Wait for the ready line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(_START_S):
            self.ready_line = (await self.process.stdout.readline()).decode()
        if not self.ready_line:
            assert self.process.stderr is not None
            raise AssertionError((await self.process.stderr.read()).decode())
        found = re.search(r"https?://127\.0\.0\.1:(\d+)", self.ready_line)
        assert found is not None, self.ready_line
        self.port = int(found[1])

    @property
    def workers(self) -> set[int]:
        """The process ids of its workers that run."""
        supervisor = self.process.pid
        return {int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()}

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context))

    async def ask(self, request: bytes) -> Response:
        """Make one request on a connection of its own."""
        client = await self.connect()
        try:
            return await client.ask(request)
        finally:
            client.close()

    async def post(self, what: str, **fields: Any) -> Response:
        """Post a prepare, submit or abort."""
        return await self.ask(post(f"/api/dtmsvr/{what}", msgspec.json.encode({"trans_type": "msg"} | fields)))

    async def state(self, gid: str) -> str | None:
        """Return the state that a query shows; None for an unknown gid."""
        found = msgspec.json.decode((await self.ask(get(f"/api/dtmsvr/query?gid={gid}"))).body)
        return None if found["transaction"] is None else str(found["transaction"]["status"])

    async def until_state(self, gid: str, wanted: str) -> None:
        """Poll until a query shows this state."""
        async with asyncio.timeout(_PATIENCE_S):
            while await self.state(gid) != wanted:
                await asyncio.sleep(0.02)

    def stop_reading_errors(self) -> None:
        """Let standard error have no reader any more."""
        transport = self.process._transport.get_pipe_transport(2)  # type: ignore[attr-defined]
        assert transport is not None
        transport.close()

    async def ended(self) -> tuple[int, str]:
        """Wait for the end; return exit code (negative: the signal) and standard error."""
        async with asyncio.timeout(_STOP_S):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()

    async def terminate(self) -> tuple[int, str]:
        """Send SIGTERM, and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """Send SIGKILL, if the process still runs, and read its pipes to their end.

        Its workers may hold them for longer.
        """
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.ended()


@contextlib.asynccontextmanager
async def serving(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """Run a ready server with its store in `folder`.

    It is killed at the end when the test has not ended it.
    """
    server = await ServerProcess.spawn("--port", "0", *arguments, environment=environment, cwd=folder)
    try:
        await server.until_ready()
        yield server
    finally:
        await server.kill()


class BranchService:
    """A branch service that records every call.

    When `open` is set, it answers as `answers` says for a path, 200 by default.
    """

    def __init__(self) -> None:
        self.answers: dict[str, int] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.calls: list[tuple[str, str]] = []
        self.called_at_ms: list[float] = []
        """When each of `calls` arrived."""
        self.heads: list[str] = []
        self.arrived = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything, and wait for it: the test's event loop ends next."""
        if self._server is not None:
            self._server.close()
        for _ in range(5):  # a connection that was accepted a moment ago has a writer then
            await asyncio.sleep(0)
        writers = list(self._writers)
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until_called(self, path: str, gid: str, *, times: int = 1) -> None:
        """Wait until this call has arrived `times` times."""
        await until(lambda: self.calls.count((path, gid)) >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.split(":")[1]))
                target = urlsplit(head.split()[1])
                self.heads.append(head.lower())
                self.called_at_ms.append(time.time() * 1000)
                self.calls.append((target.path, parse_qs(target.query)["gid"][0]))
                self.arrived.set()
                await self.open.wait()
                status = self.answers.get(target.path, 200)
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())
        self._writers.discard(writer)
        writer.close()


@contextlib.asynccontextmanager
async def branch_service(port: int = 0) -> AsyncIterator[BranchService]:
    """A branch service for one test."""
    service = BranchService()
    await service.start(port)
    try:
        yield service
    finally:
        service.open.set()
        await service.stop()
