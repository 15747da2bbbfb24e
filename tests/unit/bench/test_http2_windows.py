"""The generator respects the server's windows and its longest frame.

RFC 9113, 4.2 and 5.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

from benchmarks.load.http2 import Http2Connection

_DATA, _SETTINGS, _WINDOW_UPDATE = 0, 4, 8
_FRAME_BYTES, _STREAM_BYTES = 40, 100


class _Written:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Type, flags, stream and payload of each frame since the last look."""
        data, self.data = self.data, b""
        while data:
            stop = 9 + int.from_bytes(data[:3], "big")
            yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:stop]
            data = data[stop:]

    def messages(self) -> list[tuple[int, int, bytes]]:
        """Stream, flags and payload of the DATA frames since the last look."""
        return [(stream, flags, payload) for kind, flags, stream, payload in self.frames() if kind == _DATA]


class _Nobody:
    def answered(self, refusal: str) -> None:
        """Not in these tests."""

    def cut_off(self) -> None:
        """Nor this."""


def _frame(kind: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + stream.to_bytes(4, "big") + payload


def _setting(key: int, value: int) -> bytes:
    return key.to_bytes(2, "big") + value.to_bytes(4, "big")


def _connected() -> tuple[Http2Connection, _Written]:
    """A connection to a server of small windows."""
    connection, written = Http2Connection(lambda _lost: None), _Written()
    connection.connection_made(cast("asyncio.Transport", written))
    connection.data_received(_frame(_SETTINGS, 0, _setting(4, _STREAM_BYTES) + _setting(5, _FRAME_BYTES)))
    written.data = b""
    return connection, written


async def test_a_message_that_fits_is_one_frame() -> None:
    connection, written = _connected()
    connection.call(b"h", b"m" * _FRAME_BYTES, _Nobody())
    assert written.messages() == [(1, 1, b"m" * _FRAME_BYTES)]


async def test_a_longer_one_goes_in_frames_as_far_as_its_window_and_on_when_that_is_widened() -> None:
    connection, written = _connected()
    connection.call(b"h", b"m" * 130, _Nobody())
    assert [(flags, len(payload)) for _, flags, payload in written.messages()] == [(0, 40), (0, 40), (0, 20)]
    connection.data_received(_frame(_WINDOW_UPDATE, 1, (29).to_bytes(4, "big")))
    assert [(flags, len(payload)) for _, flags, payload in written.messages()] == [(0, 29)]
    connection.data_received(_frame(_SETTINGS, 0, _setting(4, _STREAM_BYTES + 50)))
    assert [(flags, len(payload)) for _, flags, payload in written.messages()] == [(1, 1)]


async def test_all_messages_together_keep_within_the_connections_window() -> None:
    connection, written = _connected()
    calls = 65_535 // _FRAME_BYTES + 2
    for _ in range(calls):
        connection.call(b"h", b"m" * _FRAME_BYTES, _Nobody())
    assert sum(len(payload) for _, _, payload in written.messages()) == 65_535
    connection.data_received(_frame(_WINDOW_UPDATE, 0, (1 << 20).to_bytes(4, "big")))
    assert sum(len(payload) for _, _, payload in written.messages()) == calls * _FRAME_BYTES - 65_535
