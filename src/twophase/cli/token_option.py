"""The option `--token-file` of every command that asks a server.

It is added where the commands are loaded, to each that has an option for a server's address: no command can forget it.
It is another way to set `TWOPHASE_TOKEN`, for this process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from twophase.core.bearer import TOKEN_VARIABLE, token_in

_SERVERS: Final = frozenset({"server", "coordinator"})


def with_token_option(command: Any) -> Any:
    """Return a command that takes `--token-file`, if it or one below it asks a server."""
    for below in getattr(command, "commands", {}).values():
        with_token_option(below)
    if any(parameter.name in _SERVERS for parameter in command.params):
        command.params.append(_option())
    return command


def _option() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(_template)
    (option,) = typer.main.get_command(app).params
    return option


def _keep(file: Path | None) -> Path | None:
    if file is not None:
        os.environ[TOKEN_VARIABLE] = token_in(file)
    return file


def _template(
    _token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            callback=_keep,
            expose_value=False,
            help=f"File of mode 0600 with the token for the server; else {TOKEN_VARIABLE} has it.",
        ),
    ] = None,
) -> None:
    """Lend its option to the commands."""
