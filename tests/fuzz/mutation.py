"""Bytes with small changes, drawn as fast as they can be checked.

hypothesis draws a few hundred cases a second, which follow a grammar and are made small when one fails. These are
hundred times as many, begin with right bytes, and know no grammar: what they find is named by its seed and number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

BYTES_MAX: Final = 16_384
_CHANGES: Final = (1, 1, 1, 2, 2, 3, 5, 8)
_NUMBERS: Final = (b"0", b"-1", b"1", b"127", b"255", b"65536", b"2147483648", b"9223372036854775808", b"1e309", b"NaN")
_DIGITS: Final = frozenset(b"0123456789")


class Mutator:
    """Draws changed bytes.

    Arguments:
        whole: right ones to begin with.
        words: pieces that mean something where these bytes are read.
        seed: the same bytes come for the same seed.

    >>> drawn = Mutator([b"GET / HTTP/1.1"], [b"HTTP/1.0"], seed=1)
    >>> drawn.draw() != drawn.draw()
    True
    """

    def __init__(self, whole: Sequence[bytes], words: Sequence[bytes], seed: int) -> None:
        self._whole = whole
        self._words = words
        self.random = random.Random(seed)
        self._ways: tuple[Callable[[bytearray, int], None], ...] = (
            self._flip,
            self._flip,
            self._replace,
            self._insert,
            self._insert,
            self._overwrite,
            self._remove,
            self._repeat,
            self._join,
            self._cut,
            self._number,
        )

    def draw(self) -> bytes:
        """Return the next bytes; now and then they are right."""
        drawn = self.random
        raw = bytearray(drawn.choice(self._whole))
        if drawn.random() < 0.02:
            return bytes(raw)
        for _ in range(drawn.choice(_CHANGES)):
            if raw:
                drawn.choice(self._ways)(raw, int(drawn.random() * len(raw)))
        return bytes(raw[:BYTES_MAX])

    def pieces(self, raw: bytes) -> list[bytes]:
        """Return the bytes in up to three pieces."""
        drawn = self.random
        if drawn.random() < 0.6 or len(raw) < 3:
            return [raw]
        first, second = sorted(int(drawn.random() * len(raw)) for _ in range(2))
        return [piece for piece in (raw[:first], raw[first:second], raw[second:]) if piece]

    def _flip(self, raw: bytearray, at: int) -> None:
        raw[at] ^= 1 << int(self.random.random() * 8)

    def _replace(self, raw: bytearray, at: int) -> None:
        raw[at] = int(self.random.random() * 256)

    def _insert(self, raw: bytearray, at: int) -> None:
        raw[at:at] = self.random.choice(self._words)

    def _overwrite(self, raw: bytearray, at: int) -> None:
        word = self.random.choice(self._words)
        raw[at : at + len(word)] = word

    def _remove(self, raw: bytearray, at: int) -> None:
        del raw[at : at + 1 + int(self.random.random() * 12)]

    def _repeat(self, raw: bytearray, at: int) -> None:
        piece = raw[at : at + 1 + int(self.random.random() * 40)]
        raw[at:at] = piece * int(1 + self.random.random() * 3)

    def _join(self, raw: bytearray, at: int) -> None:
        other = self.random.choice(self._whole)
        raw[at:] = other[int(self.random.random() * len(other)) :]

    def _cut(self, raw: bytearray, at: int) -> None:
        del raw[at:]

    def _number(self, raw: bytearray, at: int) -> None:
        for begin in (*range(at, len(raw)), *range(at)):
            if raw[begin] in _DIGITS:
                end = begin
                while end < len(raw) and raw[end] in _DIGITS:
                    end += 1
                raw[begin:end] = self.random.choice(_NUMBERS)
                return
