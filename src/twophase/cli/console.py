"""Consoles of the command line, which print a text unchanged.

No text is read as markup: texts come from outside, as addresses, errors of drivers, paths, names.
`twophase-spark[sqlite]` must not lose its extra, and a stray `[/x]` must not end the command. Colour is given by style,
or by `rich.text.Text`.
"""

from __future__ import annotations

from rich.console import Console


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
