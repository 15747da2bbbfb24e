"""The messages of a request, from its pieces.

Five bytes stand before each message; it may be compressed, and is never longer than allowed. A message that announces
too great a length is refused at once; one that becomes too long when it is decompressed is refused then. One unfinished
message is kept at most.

A short compressed message may become a thousand times longer. What it becomes is reported, and one that becomes long is
handed out as it is: it waits for a turn before it is decompressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from twophase.grpc_server.status import Ended, Status
from twophase.http_client.turns import LONG_BYTES

PREFIX_BYTES: Final = 5
_GROWTH_MAX: Final = 1032
"""The most bytes that each byte of zlib's may become."""
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
_SIZE_BYTES: Final = 4
"""The end of a gzip file: the bytes that it becomes (RFC 1952, 2.3.1)."""
ENCODINGS: Final = "identity, deflate, gzip"


class Compressed:
    """A long message that has yet to be decompressed.

    Arguments:
        message: as it travelled.
        bits: zlib's `wbits` for it.
        bytes_max: the most bytes that it may become.
    """

    __slots__ = ("_bits", "_bytes_max", "_message")

    def __init__(self, message: bytes, bits: int, bytes_max: int) -> None:
        self._message = message
        self._bits = bits
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        """Return the bytes that are kept."""
        return len(self._message)

    def plain(self) -> bytes:
        """Return the message.

        Raises:
            Ended: it cannot be decompressed, or is longer than allowed.
        """
        decompressor = zlib.decompressobj(self._bits)
        try:
            plain = decompressor.decompress(self._message, self._bytes_max + 1)
        except zlib.error as error:
            raise _unreadable() from error
        return _whole(plain, decompressor, self._bytes_max)


class Incoming:
    """The messages of one request.

    Arguments:
        encoding: the request's `grpc-encoding`.
        bytes_max: the longest message.
        unfolded: called with the bytes that a compressed message became, also of one that is refused.
    """

    __slots__ = ("_buffer", "_bytes_max", "_encoding", "_unfolded")

    def __init__(self, encoding: bytes, bytes_max: int, unfolded: Callable[[int], None]) -> None:
        self._encoding = encoding
        self._bytes_max = bytes_max
        self._unfolded = unfolded
        self._buffer = bytearray()

    @property
    def unfinished(self) -> int:
        """The number of bytes of an unfinished message."""
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """The number of bytes missing until it is whole; 0 while that is unknown."""
        buffer = self._buffer
        return PREFIX_BYTES + int.from_bytes(buffer[1:5], "big") - len(buffer) if len(buffer) >= PREFIX_BYTES else 0

    def feed(self, data: bytes) -> list[tuple[bytes | Compressed, int]]:
        """Return the messages that the data completes, each with its bytes on the wire.

        Raises:
            Ended: one cannot be taken.
        """
        buffer = self._buffer
        buffer += data
        found: list[tuple[bytes | Compressed, int]] = []
        while len(buffer) >= PREFIX_BYTES:
            size = int.from_bytes(buffer[1:5], "big")
            if buffer[0] > 1:
                raise Ended(
                    Status.INVALID_ARGUMENT, "the request is not a gRPC message: it begins with neither 0 nor 1."
                )
            if size > self._bytes_max:
                raise _too_long(size, self._bytes_max)
            if len(buffer) < PREFIX_BYTES + size:
                break
            message = bytes(buffer[PREFIX_BYTES : PREFIX_BYTES + size])
            found.append((self._unfold(message) if buffer[0] else message, PREFIX_BYTES + size))
            del buffer[: PREFIX_BYTES + size]
        return found

    def _unfold(self, message: bytes) -> bytes | Compressed:
        bits = _WINDOW_BITS.get(self._encoding)
        if bits is None:
            raise Ended(
                Status.UNIMPLEMENTED,
                f"grpc-encoding: the message is compressed in a way that is not known here; known are {ENCODINGS}.",
                (("grpc-accept-encoding", ENCODINGS),),
            )
        decompressor = zlib.decompressobj(bits)
        try:
            plain = decompressor.decompress(message, min(LONG_BYTES, self._bytes_max) + 1)
        except zlib.error as error:
            self._unfolded(min(_GROWTH_MAX * len(message), LONG_BYTES))
            raise _unreadable() from error
        if len(plain) <= LONG_BYTES:
            self._unfolded(len(plain))
            return _whole(plain, decompressor, self._bytes_max)
        size = min(_GROWTH_MAX * len(message), self._bytes_max)
        if bits == _WINDOW_BITS[b"gzip"]:
            size = min(size, max(LONG_BYTES, int.from_bytes(message[-_SIZE_BYTES:], "little")))
        self._unfolded(size)
        return Compressed(message, bits, size)


def _whole(plain: bytes, decompressor: zlib._Decompress, bytes_max: int) -> bytes:
    if len(plain) > bytes_max:
        raise _too_long(len(plain), bytes_max)
    if not decompressor.eof:
        raise Ended(Status.INVALID_ARGUMENT, "the compressed message is cut off.")
    if decompressor.unused_data:
        raise Ended(Status.INVALID_ARGUMENT, "the compressed message has more behind it: it must be a single one.")
    return plain


def _unreadable() -> Ended:
    return Ended(Status.INVALID_ARGUMENT, "the message cannot be decompressed.")


def _too_long(size: int, bytes_max: int) -> Ended:
    return Ended(Status.RESOURCE_EXHAUSTED, f"the message is at least {size} bytes, at most {bytes_max} are read.")
