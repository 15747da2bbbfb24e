"""Texts that no terminal obeys.

Promise: a character that is not printable, such as the one that begins an escape sequence or turns the direction of
reading, is shown by its code.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast


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


class OutputFailed(OSError):
    """Standard output or standard error takes no more text, as on a full disk."""


class _Stream:
    """A stream that raises `OutputFailed` where it takes no more."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        with _failing():
            return self.unfiltered.write(text)

    def flush(self) -> None:
        with _failing():
            self.unfiltered.flush()

    def __getattr__(self, name: str) -> Any:
        """Return what the stream behind it has."""
        return getattr(self.unfiltered, name)


class PrintableStream(_Stream):
    r"""A stream whose every text is printable.

    Colours and other escape codes that a command means are written to the stream behind it. `write` and `flush` raise
    `OutputFailed` where it takes no more, and BrokenPipeError where its reader has gone.

    >>> from io import StringIO
    >>> behind = StringIO()
    >>> print("card\x1b[2J", file=PrintableStream(behind))
    >>> behind.getvalue()
    'card\\x1b[2J\n'
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.rich_proxied_file = _Stream(stream)
        """The same: the name by which rich looks for it."""

    def write(self, text: str) -> int:
        """Write a text, made printable; return its length."""
        super().write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.errno, error.strerror) from error


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream behind a `PrintableStream`, or the stream itself."""
    behind: TextIO = getattr(stream, "unfiltered", stream)
    return behind


def drop_output() -> None:
    """Drop what cannot be written.

    Otherwise the interpreter would try it again at its end, print a traceback, and end with 120.
    """
    for stream in (cast("TextIO | None", sys.stdout), cast("TextIO | None", sys.stderr)):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
