"""Output of the command line, in which no text is obeyed.

Texts come from outside, as addresses, answers, remarks, errors of drivers, paths, names. None is read as markup:
`twophase-spark[sqlite]` must not lose its extra, and a stray `[/x]` must not end the command. No terminal obeys one: a
character that is not printable, such as the one that begins an escape sequence or turns the direction of reading, is
shown by its code. Colour is given by style, or by `rich.text.Text`.
"""

from __future__ import annotations

import typer
from rich.console import Console
from rich.text import Text


def plain_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that reads no markup, and no names of emoji.

    >>> from io import StringIO
    >>> console = plain_console()
    >>> console.file = StringIO()
    >>> console.print("[red]x[/y] :smile:")
    >>> console.file.getvalue()
    '[red]x[/y] :smile:\\n'
    """
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def printable(text: str) -> str:
    """Return a text that changes nothing but the place where it is printed.

    >>> print(printable("card\\x1b[2J \\u202edesrever"))
    card\\x1b[2J \\u202edesrever
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text])


def cell(text: str) -> Text:
    """Return a text for a table of rich."""
    return Text(printable(text))


def echo(text: str, *, err: bool = False) -> None:
    """Print a text and the end of its line."""
    typer.echo(printable(text), err=err)
