"""The frames of HTTP/2 as bytes (RFC 9113).

Numbers, the nine bytes before each frame, and fields that need no table. The server and the generator of load take
HTTP/2's numbers from this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The preface: the first bytes of a client."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

HEAD_BYTES: Final = 9
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
FRAME_BYTES_MAX: Final = (1 << 24) - 1
NUMBER_MAX: Final = (1 << 31) - 1
"""The largest stream and the largest window."""
HEAD: Final = Struct(">BHBBI")
"""The nine bytes: length (high, low), kind, flags, stream."""

_SEVEN_BITS: Final = 127
_STATUS_200: Final = b"\x88"
_STATUS: Final = b"\x08"


def lead(size: int, kind: int, flags: int) -> bytes:
    """Return the part of a frame's head before the stream's number.

    >>> lead(8, PING, ACK)
    b'\\x00\\x00\\x08\\x06\\x01'
    """
    return (size << 16 | kind << 8 | flags).to_bytes(5, "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return a whole frame."""
    return (len(payload) << 48 | kind << 40 | flags << 32 | stream).to_bytes(9, "big") + payload


def settings(values: Mapping[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(
        SETTINGS, payload=b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items())
    )


def window_update(stream: int, by: int) -> bytes:
    """Return a frame that allows the peer more data; stream 0 is the connection."""
    return (4 << 48 | WINDOW_UPDATE << 40 | stream).to_bytes(9, "big") + by.to_bytes(4, "big")


def reset(stream: int, code: int) -> bytes:
    """Return the frame that ends one stream."""
    return (4 << 48 | RST_STREAM << 40 | stream).to_bytes(9, "big") + code.to_bytes(4, "big")


def goaway(last: int, code: int, text: str = "") -> bytes:
    """Return the frame that ends a connection.

    Streams after `last` were not looked at.
    """
    return frame(GOAWAY, payload=last.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode("ascii", "replace"))


def header_frames(stream: int, block: bytes, flags: int = 0) -> bytes:
    """Return HEADERS, and CONTINUATION as long as the block needs it."""
    if len(block) <= DEFAULT_FRAME_BYTES:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    pieces = [block[at : at + DEFAULT_FRAME_BYTES] for at in range(0, len(block), DEFAULT_FRAME_BYTES)]
    middle = b"".join(frame(CONTINUATION, 0, stream, piece) for piece in pieces[1:-1])
    return frame(HEADERS, flags, stream, pieces[0]) + middle + frame(CONTINUATION, END_HEADERS, stream, pieces[-1])


def _text(value: bytes) -> bytes:
    """Return a string of RFC 7541, 5.2, without compression."""
    size = len(value)
    if size < _SEVEN_BITS:
        return bytes((size,)) + value
    size -= _SEVEN_BITS
    more = bytearray((_SEVEN_BITS,))
    while size > _SEVEN_BITS:
        more.append(size & _SEVEN_BITS | 0x80)
        size >>= 7
    more.append(size)
    return bytes(more) + value


def field(name: bytes, value: bytes) -> bytes:
    """Return a header that neither reads nor changes the peer's table.

    So it means the same at any time (RFC 7541, 6.2.2).

    >>> field(b"grpc-status", b"0")
    b'\\x00\\x0bgrpc-status\\x010'
    """
    return b"\0" + _text(name) + _text(value)


def status_field(status: int) -> bytes:
    """Return the `:status` of an answer."""
    return _STATUS_200 if status == 200 else _STATUS + _text(b"%d" % status)
