"""The end of a gRPC call: its code, headers and trailers.

Source: gRPC over HTTP/2, "Responses".
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable
from typing import Final

from twophase.grpc_server.http2.frames import field, status_field
from twophase.grpc_server.http2.response import Response

TYPE: Final = b"application/grpc"
_HEADERS: Final = status_field(200) + field(b"content-type", TYPE)
_PRINTED: Final = frozenset(range(0x20, 0x7F)) - frozenset(b"%")

Metadata = Iterable[tuple[str, str | bytes]]
"""Names in lower case and values.

Bytes where the name ends with `-bin`, else text of printable ASCII.
"""


class Status(enum.IntEnum):
    """gRPC's codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Ended(Exception):
    """The end of a call with a code other than OK; the method that answers raises it."""

    def __init__(self, status: Status, message: str, metadata: Metadata = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.metadata = tuple(metadata)


def percent_encoded(text: str) -> bytes:
    """Return a text as `grpc-message` carries it.

    >>> percent_encoded("100 % größer")
    b'100 %25 gr%C3%B6%C3%9Fer'
    """
    return b"".join(bytes((one,)) if one in _PRINTED else b"%%%02X" % one for one in text.encode("utf-8", "replace"))


def metadata_fields(metadata: Metadata) -> bytes:
    """Return metadata as a part of a block.

    >>> metadata_fields([("key-bin", b"\\xff")])
    b'\\x00\\x07key-bin\\x02/w'
    """
    return b"".join(field(name.encode("ascii"), _on_the_wire(value)) for name, value in metadata)


def _on_the_wire(value: str | bytes) -> bytes:
    return value.encode("ascii") if isinstance(value, str) else base64.b64encode(value).rstrip(b"=")


def trailers(status: Status, message: str = "", metadata: Metadata = ()) -> bytes:
    """Return the block that ends a call."""
    text = field(b"grpc-message", percent_encoded(message)) if message else b""
    return field(b"grpc-status", b"%d" % status) + text + metadata_fields(metadata)


HEADERS: Final = _HEADERS
"""The block that begins an answer with a message."""


def framed(message: bytes) -> bytes:
    """Return a message as it travels: its length before it, not compressed.

    >>> framed(b"ab")
    b'\\x00\\x00\\x00\\x00\\x02ab'
    """
    return b"\0" + len(message).to_bytes(4, "big") + message


def success(message: bytes, metadata: Metadata = ()) -> Response:
    """Return an answer with one message, and OK."""
    return Response(HEADERS, framed(message), trailers(Status.OK, "", metadata))


def ended(status: Status, message: str, metadata: Metadata = ()) -> Response:
    """Return an answer without a message, with the reason."""
    return Response(_HEADERS + trailers(status, message, metadata))


def refused_by_http(http_status: int, status: Status, message: str) -> Response:
    """Return the answer to a request that is no gRPC call.

    It has a status and a text that any client of HTTP can read, and gRPC's beside them.
    """
    headers = status_field(http_status) + field(b"content-type", b"text/plain; charset=utf-8")
    return Response(headers + trailers(status, message), f"{message}\n".encode())
