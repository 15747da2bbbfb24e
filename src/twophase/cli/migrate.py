"""`twophase migrate`: create or upgrade the schema of the coordinator's own store."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase.cli.error_text import error_text
from twophase.core.credentials import secret_of, shown
from twophase.core.errors import TwophaseError
from twophase.server.stores import migrate_store, schema_script

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_EXIT_NOT_MIGRATED: Final = 2
_EXAMPLES: Final = """\b
Examples:
  twophase migrate --store postgresql://owner@db/twophase
  twophase migrate --store postgresql://db/twophase --print > twophase.sql
  TWOPHASE_STORE=sqlite:///twophase.db twophase migrate"""


@app.command(epilog=_EXAMPLES)
def migrate(
    store: Annotated[
        str, typer.Option(help="Store URL, or env:NAME or file:PATH that holds it.", envvar="TWOPHASE_STORE")
    ] = "sqlite:///twophase.db",
    *,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the statements that create a new store; connect to nothing.")
    ] = False,
) -> None:
    """Create or upgrade the schema of the coordinator's store.

    Safe to repeat; versions only go forward. A server does this by itself at its start when its user may create tables.
    """
    try:
        store = secret_of(store)
        if print_only:
            echo(schema_script(store))
            return
        before, after = asyncio.run(migrate_store(store))
    except TwophaseError as error:
        echo(error_text(error), err=True)
        raise typer.Exit(_EXIT_NOT_MIGRATED) from None
    name = shown(store)
    if before == after:
        echo(f"{name}: schema version {after}, nothing to do")
    else:
        echo(f"{name}: schema version {after}, {f'was {before}' if before else 'made anew'}")
