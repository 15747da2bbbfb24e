"""A receiver that costs next to nothing: answers every request with the same 200. `python -m benchmarks.sink`.

It knows only requests with a Content-Length, as our client writes them, and prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import uvloop

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class _Sink(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, head)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(self._received) < end:
                return
            self._received = self._received[end:]
            self._transport.write(_ANSWER)


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(_Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
