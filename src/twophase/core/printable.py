"""Texts that no terminal obeys.

Promise: a character that is not printable, such as the one that begins an escape sequence or turns the direction of
reading, is shown by its code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TextIO


def printable(text: str, *, kept: str = "\n\t") -> str:
    r"""Return a text that changes nothing but the place where it is printed.

    `kept`: characters that stay although they are not printable.

    >>> print(printable("card\x1b[2J \u202edesrever"))
    card\x1b[2J \u202edesrever
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text])


def printable_json(text: str) -> str:
    r"""Return the same JSON with the codes that JSON has for them.

    >>> print(printable_json('"card\x9b2J \U000e0001"'))
    "card\u009b2J \udb40\udc01"
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text])


class PrintableStream:
    r"""A stream whose every text is printable.

    Colours and other escape codes that a command means are written to the stream behind it.

    >>> from io import StringIO
    >>> behind = StringIO()
    >>> print("card\x1b[2J", file=PrintableStream(behind))
    >>> behind.getvalue()
    'card\\x1b[2J\n'
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream
        self.rich_proxied_file = stream
        """The same: the name by which rich looks for it."""

    def write(self, text: str) -> int:
        """Write a text, made printable; return its length."""
        self.unfiltered.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return what the stream behind it has."""
        return getattr(self.unfiltered, name)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream behind a `PrintableStream`, or the stream itself."""
    behind: TextIO = getattr(stream, "unfiltered", stream)
    return behind
