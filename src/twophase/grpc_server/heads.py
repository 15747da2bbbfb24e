"""The meaning of a gRPC call's headers: method, deadline, encoding.

A call may be refused by them, before its message is read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

from twophase.grpc_server.calls import Calls
from twophase.grpc_server.http2.headers import FIELD_BYTES_BESIDE, Fields, Malformed
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.http2.stream import Peer, Stream
from twophase.grpc_server.incoming import Incoming
from twophase.grpc_server.status import Status, ended, refused_by_http

_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_MS: Final = {b"H": 3_600_000.0, b"M": 60_000.0, b"S": 1_000.0, b"m": 1.0, b"u": 1e-3, b"n": 1e-6}
_TYPE: Final = re.compile(rb"application/grpc(?:\+proto)?(?:[ \t]*;.*)?", re.IGNORECASE)
_ANY_TYPE: Final = re.compile(rb"application/grpc(?:[+; \t].*)?", re.IGNORECASE)
_SHOWN_MAX: Final = 60


class CallHead:
    """The headers of a call; implements `http2.stream.Head`.

    One object serves all calls with the same headers. `begin` makes the call and `method` answers it; `refusal`, when
    there is one, is the answer. `kept` is the value that the service has made of the metadata. `message_bytes_max` is
    the longest message of the method.
    """

    __slots__ = ("always", "begin", "content_bytes", "eager", "encoding", "fields", "is_grpc", "kept",
                 "message_bytes_max", "method", "path", "refusal", "services", "timeout_ms")  # fmt: skip

    def __init__(self, fields: Fields, services: Calls) -> None:
        self.fields = fields
        self.services = services
        headers = dict(fields)
        self.path = headers[b":path"].decode("latin-1")
        self.content_bytes = _content_bytes(headers.get(b"content-length"))
        self.encoding = headers.get(b"grpc-encoding", b"identity")
        self.eager = False
        self.always = False
        """True for a method that is served where all places of calls are taken."""
        self.kept: Any = None
        self.method: Any = None
        self.message_bytes_max = services.message_bytes_max
        self.begin: Callable[[Peer, int, Any], Stream]
        self.timeout_ms = 0
        """0: no deadline."""
        self.is_grpc = (
            headers[b":method"] == b"POST" and _ANY_TYPE.fullmatch(headers.get(b"content-type", b"")) is not None
        )
        self.refusal: Response | None = _refusal(headers)
        timeout = headers.get(b"grpc-timeout")
        if timeout is not None and self.refusal is None:
            self._read_timeout(timeout)

    def incoming(self, connection: Peer) -> Incoming:
        """Return the messages of one such call."""
        return Incoming(self.encoding, self.message_bytes_max, connection.unfolded)

    def metadata(self) -> list[tuple[str, str | bytes]]:
        """Return the caller's metadata, without what belongs to HTTP/2 and gRPC.

        `-bin` values are bytes.
        """
        pairs: list[tuple[str, str | bytes]] = []
        for raw, value in self.fields:
            if raw[:1] == b":" or raw in {b"content-type", b"te", b"grpc-timeout", b"grpc-encoding"}:
                continue
            name = raw.decode("latin-1")
            if name.endswith("-bin"):
                pairs += [(name, _decoded(one)) for one in value.split(b",")]
            else:
                pairs.append((name, value.decode("latin-1")))
        return pairs

    def _read_timeout(self, value: bytes) -> None:
        found = _TIMEOUT.fullmatch(value)
        if found is None:
            self.refusal = ended(
                Status.INVALID_ARGUMENT, "grpc-timeout is not up to eight digits and a unit of HMSmun."
            )
        else:
            self.timeout_ms = max(1, round(int(found[1]) * _MS[found[2]]))


def list_bytes(fields: Fields) -> int:
    """Return the size of a list of headers as HTTP/2 counts it (RFC 9113, 6.5.2)."""
    return sum(len(name) + len(value) + FIELD_BYTES_BESIDE for name, value in fields)


def _decoded(value: bytes) -> bytes:
    try:
        return base64.b64decode(value.strip() + b"=" * (-len(value.strip()) % 4))
    except binascii.Error:
        return b""


def _content_bytes(value: bytes | None) -> int:
    if value is None:
        return -1
    if not value.isdigit() or len(value) > 15:
        raise Malformed("a content-length that is not a number")
    return int(value)


def _refusal(headers: dict[bytes, bytes]) -> Response | None:
    """Return the refusal of a request that is no gRPC call; None for a gRPC call."""
    kind = headers.get(b"content-type", b"")
    if headers[b":method"] != b"POST":
        text = "a gRPC call is needed: POST, content-type application/grpc."
        return refused_by_http(405, Status.UNIMPLEMENTED, text)
    if _TYPE.fullmatch(kind):
        return None
    shown = kind[:_SHOWN_MAX].decode("ascii", "replace")
    needed = "a gRPC message (content-type application/grpc, five bytes before the protobuf) is needed."
    text = f"content-type is {shown!r}: {needed}"
    if _ANY_TYPE.fullmatch(kind):
        return ended(Status.INVALID_ARGUMENT, text)
    return refused_by_http(415, Status.INVALID_ARGUMENT, text)
