"""The part of a connection that turns bytes into frames.

It knows how frames follow each other (RFC 9113, 3.4, 4 and 6.10). Promise: the frames are the same however the bytes
are split into reads, nothing but one unfinished frame or block of headers is kept, and bytes that no frame can have end
the connection with the error that RFC 9113 names.
"""

from __future__ import annotations

import abc
from typing import Final

from twophase.grpc_server.http2.faults import ConnectionFault, StreamFault
from twophase.grpc_server.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    END_HEADERS,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    NUMBER_MAX,
    PADDED,
    PREFACE,
    PROTOCOL_ERROR,
    SETTINGS,
    WITH_PRIORITY,
)
from twophase.grpc_server.http2.limits import BLOCK_BYTES_MAX

_METHODS_OF_HTTP_1: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC")


class NotHttp2(Exception):
    """The peer speaks another protocol; `is_http_1`: HTTP/1."""

    def __init__(self, *, is_http_1: bool) -> None:
        super().__init__()
        self.is_http_1 = is_http_1


class FrameReader(abc.ABC):
    """Splits the bytes of one peer. Subclasses take the frames."""

    def __init__(self) -> None:
        self.greeted = False
        """True when the peer has sent the preface of HTTP/2."""
        self.deaf = False
        """True when further bytes are of no interest."""
        self.tired = False
        """True when the frames behind this one wait for the next turn."""
        self._rest = b""
        self._block_stream = 0
        self._block_flags = 0
        self._block: list[bytes] = []
        self._block_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the bytes of one read.

        Raises:
            ConnectionFault: the connection cannot continue. NotHttp2: it never began.
        """
        if self._rest:
            data = self._rest + data
        at = 0 if self.greeted else self._greet(data)
        if self.greeted:
            at = self._split(data, at)
        self._rest = data[at:]

    def _greet(self, data: bytes) -> int:
        """Look for the preface and the SETTINGS that must follow it.

        Returns the number of bytes of `data` that are read.
        """
        size = min(len(data), len(PREFACE))
        if data[:size] != PREFACE[:size]:
            if size < 4 and any(method.startswith(data) for method in _METHODS_OF_HTTP_1):
                return 0
            raise NotHttp2(is_http_1=data[:4] in _METHODS_OF_HTTP_1)
        if len(data) < len(PREFACE) + HEAD_BYTES:
            return 0
        self.greeted = True
        self.take_greeting()
        _, _, kind, flags, _ = HEAD.unpack_from(data, len(PREFACE))
        if kind != SETTINGS or flags & ACK:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS must come first")
        return len(PREFACE)

    def _split(self, data: bytes, at: int) -> int:
        """Take every whole frame from `at` on.

        Returns the start of the first unfinished one.
        """
        end = len(data)
        while end - at >= HEAD_BYTES and not (self.deaf or self.tired):
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            size = high << 16 | low
            if size > DEFAULT_FRAME_BYTES:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a frame longer than allowed")
            stop = at + HEAD_BYTES + size
            if stop > end:
                break
            payload = data[at + HEAD_BYTES : stop]
            at = stop
            stream &= NUMBER_MAX
            try:
                if self._block_stream:
                    self._continue(kind, flags, stream, payload)
                elif kind == DATA:
                    self.take_data(flags, stream, payload)
                elif kind == HEADERS:
                    self._begin_block(flags, stream, payload)
                else:
                    self.take_other(kind, flags, stream, payload)
            except StreamFault as fault:
                self.take_fault(fault)
        return at

    def _begin_block(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream:
            raise ConnectionFault(PROTOCOL_ERROR, "HEADERS without a stream")
        depends_on = -1
        if flags & (PADDED | WITH_PRIORITY):
            payload = unpadded(flags, payload)
            if flags & WITH_PRIORITY:
                if len(payload) < 5:
                    raise ConnectionFault(FRAME_SIZE_ERROR, "HEADERS too short for a priority")
                depends_on, payload = int.from_bytes(payload[:4], "big") & NUMBER_MAX, payload[5:]
        if flags & END_HEADERS:
            self.take_block(flags, stream, payload)
        else:
            self._block_stream, self._block_flags = stream, flags
            self._block, self._block_bytes = [payload], len(payload)
        if depends_on == stream:
            raise StreamFault(stream, PROTOCOL_ERROR, "a stream that depends on itself")

    def _continue(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind != CONTINUATION or stream != self._block_stream:
            raise ConnectionFault(PROTOCOL_ERROR, "a block of headers is not whole")
        self._block.append(payload)
        self._block_bytes += len(payload)
        self.odd()
        if self._block_bytes > BLOCK_BYTES_MAX:
            raise ConnectionFault(ENHANCE_YOUR_CALM, f"headers of more than {BLOCK_BYTES_MAX} bytes")
        if flags & END_HEADERS:
            self._block_stream = 0
            block, self._block = b"".join(self._block), []
            self.take_block(self._block_flags, stream, block)

    @abc.abstractmethod
    def take_greeting(self) -> None:
        """Note that the peer speaks HTTP/2."""

    @abc.abstractmethod
    def take_data(self, flags: int, stream: int, payload: bytes) -> None:
        """Take a DATA frame."""

    @abc.abstractmethod
    def take_block(self, flags: int, stream: int, block: bytes) -> None:
        """Take a whole block of headers."""

    @abc.abstractmethod
    def take_other(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Take any other frame."""

    @abc.abstractmethod
    def take_fault(self, fault: StreamFault) -> None:
        """Note that one stream cannot continue."""

    @abc.abstractmethod
    def odd(self) -> None:
        """Count a frame that a proper peer sends only now and then.

        Raises ConnectionFault when there are too many.
        """


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return the payload without its padding; raises ConnectionFault."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
