"""A connection in memory: what is written is kept."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport(asyncio.Transport):
    """The end of a connection that a protocol under test writes to.

    `written` holds all bytes and `writes` counts the writes. `reading` is False while the protocol takes no more.
    `closed` is True after `close` and `abort`, `aborted` after `abort`, `eof` after the end of writing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.closed = self.aborted = self.eof = False
        self.reading = True

    def write(self, data: Any) -> None:
        assert not self.eof, "nothing is written after the end"
        self.written += data
        self.writes += 1

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9) if name in {"sockname", "peername"} else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True
