"""`twophase limits`: every bound of the protocol, with its reason."""

from __future__ import annotations

from typing import Final

import typer

from twophase.cli.console import echo
from twophase.core.limits import LIMITS

app = typer.Typer(rich_markup_mode=None, add_completion=False)


_EXAMPLES: Final = """\b
Examples:
  twophase limits
  twophase limits | grep payload"""


@app.command(epilog=_EXAMPLES)
def limits() -> None:
    """Print every limit of the protocol."""
    width = max(len(limit.name) for limit in LIMITS)
    for limit in LIMITS:
        echo(f"{limit.name:<{width}}  {limit.value:>12} {limit.unit:<8}  {limit.why}")
