"""The branch service of the recording: a path's name contains its answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from tests.wire.comparing import same_call
from tests.wire.transcripts import SinkCall

_ANSWERS: Final[dict[str, tuple[int, str]]] = {
    "/ok": (200, '{"dtm_result":"SUCCESS"}'),
    "/ok2": (200, '{"dtm_result":"SUCCESS"}'),
    "/empty200": (200, ""),
    "/s201": (201, "created"),
    "/s204": (204, ""),
    "/f409": (409, '{"error":"no stock FAILURE"}'),
    "/f409plain": (409, "no stock"),
    "/o425": (425, '{"dtm_result":"ONGOING"}'),
    "/e500": (500, "boom"),
    "/t200failure": (200, '{"dtm_result":"FAILURE"}'),
    "/t200ongoing": (200, '{"dtm_result":"ONGOING"}'),
    "/e502failure": (502, "<h1>FAILURE</h1>"),
    "/nf404": (404, "nf"),
}
_NEVER: Final = "/slow5"


class Sink:
    """A service that answers by path and keeps every call.

    `/slow5` is not answered while a caller waits.
    """

    def __init__(self) -> None:
        self.calls: list[SinkCall] = []
        self.address = ""
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def until(self, wanted: SinkCall, timeout_s: float) -> bool:
        """Wait for this call; return True when it has arrived in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._has(wanted):
                    self._changed.clear()
                    await self._changed.wait()
        return self._has(wanted)

    def _has(self, wanted: SinkCall) -> bool:
        return any(same_call(wanted, call) for call in self.calls)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                body = (await reader.readexactly(int(length[0][15:]))).decode() if length else ""
                self.calls.append(SinkCall(method, target, body))
                self._changed.set()
                path = target.partition("?")[0]
                if path == _NEVER:
                    await reader.read()
                    break
                status, text = _ANSWERS[path]
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
        writer.close()


@contextlib.asynccontextmanager
async def sink() -> AsyncIterator[Sink]:
    """Run a branch service for one replay."""
    one = Sink()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()
