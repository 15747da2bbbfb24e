"""`twophase limits`: every bound of the protocol, with its reason."""

from __future__ import annotations

import typer

from twophase.core.limits import LIMITS

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def limits() -> None:
    """Print every limit of the protocol."""
    width = max(len(limit.name) for limit in LIMITS)
    for limit in LIMITS:
        typer.echo(f"{limit.name:<{width}}  {limit.value:>12} {limit.unit:<8}  {limit.why}")
