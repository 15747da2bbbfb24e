"""Output of the command line, in which no text is obeyed.

Texts come from outside, as addresses, answers, remarks, errors of drivers, paths, names. None is read as markup:
`twophase-spark[sqlite]` must not lose its extra, and a stray `[/x]` must not end the command. No terminal obeys one
(`core.printable`). Colour is given by style, or by `rich.text.Text`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from twophase.core.printable import printable, printable_json


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
