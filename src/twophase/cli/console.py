"""Output of the command line, in which no text is obeyed.

Texts come from outside, as addresses, answers, remarks, errors of drivers, paths, names. None is read as markup:
`twophase-spark[sqlite]` must not lose its extra, and a stray `[/x]` must not end the command. No terminal obeys one
(`core.printable`). Colour is given by style, or by `rich.text.Text`.

This is the one module that prints. What others print in a command's process, as the messages of click, tracebacks,
warnings and lines of libraries' loggers, passes the streams that `guard_streams` puts in place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO, cast

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from twophase.core.printable import PrintableStream, printable, printable_json


def guard_streams() -> None:
    """Make every text printable that this process writes from now on."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def _guarded(stream: TextIO | None) -> TextIO:
    """Return a stream for the same place; None where a process was started without it."""
    return cast("TextIO", stream if stream is None else PrintableStream(stream))


def on_terminal(*, stderr: bool = False) -> bool:
    """Return True where a person reads the output.

    False also for a process without that stream.
    """
    stream = sys.stderr if stderr else sys.stdout
    return cast("TextIO | None", stream) is not None and stream.isatty()


def flush_output() -> None:
    """Write what is still in the buffer of standard output."""
    stream = cast("TextIO | None", sys.stdout)
    if stream is not None:
        stream.flush()


def plain_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that reads no markup, and no names of emoji.

    >>> from io import StringIO
    >>> console = plain_console()
    >>> console.file = StringIO()
    >>> console.print("[red]x[/y] :smile:")
    >>> console.file.getvalue()
    '[red]x[/y] :smile:\\n'
    """
    return _PrintableConsole(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


class _PrintableConsole(Console):
    """A console whose every text is printable, also one in a table or with a style."""

    @property
    def file(self) -> IO[str]:
        """The stream for rich's own codes, which are meant.

        While a bar is shown, rich's redirection stands before the guarded stream: it is two steps behind.
        """
        found = super().file
        return cast("IO[str]", getattr(found, "rich_proxied_file", found))

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        Console.file.fset(self, new_file)  # type: ignore[attr-defined]  # a property of the base class

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a text as printed, so that its width is known before it is placed."""
        return super().render_str(printable(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the printed parts; the control codes are rich's own, and stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def cell(text: str) -> Text:
    """Return a text for a table of rich."""
    return Text(printable(text))


def echo(text: str, *, err: bool = False) -> None:
    """Print a text and the end of its line."""
    typer.echo(printable(text), err=err)


def echo_json(text: str) -> None:
    """Print JSON, which stays the same JSON for programs."""
    typer.echo(printable_json(text))


def confirmed(question: str) -> bool:
    """Ask on standard error; return True for a yes."""
    return typer.confirm(printable(question), err=True)
