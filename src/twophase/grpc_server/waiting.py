"""Messages that wait until they are taken, in one piece of memory.

As objects, messages of no byte or of a few cost a hundred bytes each, and their end costs as much as their beginning:
a window full of them would cost megabytes that no budget counts.
"""

from __future__ import annotations

import struct
from typing import Final

_SIZES: Final = struct.Struct(">II")


class Waiting:
    """See the module.

    >>> waiting = Waiting()
    >>> waiting.add(b"first", 10)
    >>> (waiting.size, waiting.take(), bool(waiting))
    (13, (b'first', 10), False)
    """

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed = bytearray()

    def __bool__(self) -> bool:
        return bool(self._packed)

    @property
    def size(self) -> int:
        """The bytes that they occupy."""
        return len(self._packed)

    def add(self, message: bytes, wire_bytes: int) -> None:
        """Add a message, which had that many bytes on the wire."""
        self._packed += _SIZES.pack(len(message), wire_bytes)
        self._packed += message

    def take(self) -> tuple[bytes, int]:
        """Remove the first message, and return it with its bytes on the wire."""
        size, wire_bytes = _SIZES.unpack_from(self._packed)
        message = bytes(self._packed[_SIZES.size : _SIZES.size + size])
        del self._packed[: _SIZES.size + size]
        return message, wire_bytes

    def clear(self) -> None:
        """Drop them all."""
        self._packed.clear()
