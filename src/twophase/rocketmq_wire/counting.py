"""The number of values in a request, counted before any is made.

A few megabytes of empty messages or of short keys would become some hundred times as many bytes of objects.
"""

from __future__ import annotations

from typing import Final

_VARINT, _LENGTH = 0, 2
_FIXED: Final = {1: 8, 5: 4}
_MESSAGES: Final = 1
_SYSTEM_PROPERTIES: Final = 3
_SENT: Final = (_MESSAGES, _SYSTEM_PROPERTIES)


def count_fields(raw: bytes, most: int, within: tuple[int, ...] = _SENT) -> int:
    """Count the fields of a request, and of what is within it.

    It stops beyond `most`, and where the bytes are no protobuf: there the parser stops, too.

    Arguments:
        raw: the request.
        most: it counts no further.
        within: the number of the field whose own fields count, of the one in those, and so on: by default the messages
            of a SendMessageRequest and their system properties.

    >>> count_fields(bytes([10, 4, 26, 2, 10, 0]), 9)
    3
    """
    count = 0
    ends = [len(raw)]
    at = 0
    while ends and count <= most:
        if at >= ends[-1]:
            ends.pop()
            continue
        count += 1
        tag, at = _number(raw, at)
        kind, depth = tag & 7, len(ends) - 1
        if kind == _LENGTH:
            length, at = _number(raw, at)
            if depth < len(within) and tag >> 3 == within[depth]:
                ends.append(min(at + length, ends[-1]))
            else:
                at += length
        elif kind == _VARINT:
            _, at = _number(raw, at)
        else:
            at += _FIXED.get(kind, 0)
    return count


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position behind it; 0 where the bytes end within it."""
    number = shift = 0
    for byte in raw[at : at + 10]:
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
    return 0, len(raw)
