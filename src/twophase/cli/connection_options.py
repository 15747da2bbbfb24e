"""The options of every command that asks a server: token and certificates.

They are added where the commands are loaded, to each that has an option for a server's address: no command can forget
them. Each is another way to set the variable of the same meaning, for this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from twophase.core.bearer import TOKEN_VARIABLE, token_in
from twophase.core.trust import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE

_SERVERS: Final = frozenset({"server", "coordinator"})


def with_connection_options(command: Any) -> Any:
    """Return a command that takes the options, if it or one below it asks a server."""
    for below in getattr(command, "commands", {}).values():
        with_connection_options(below)
    if any(parameter.name in _SERVERS for parameter in command.params):
        command.params += _options()
    return command


def _options() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_template)
    return list(typer.main.get_command(app).params)


def _keep_token(file: Path | None) -> Path | None:
    if file is not None:
        os.environ[TOKEN_VARIABLE] = token_in(file)
    return file


def _keep(variable: str) -> Callable[[str | None], str | None]:
    def keep(file: str | None) -> str | None:
        if file is not None:
            os.environ[variable] = file
        return file

    return keep


def _template(
    _token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            callback=_keep_token,
            expose_value=False,
            help=f"File of mode 0600 with the token for the server; else {TOKEN_VARIABLE} has it.",
        ),
    ] = None,
    _ca: Annotated[
        str | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            callback=_keep(CA_VARIABLE),
            expose_value=False,
            help=f"PEM file of the authority of an https server; else {CA_VARIABLE}, or the system's authorities.",
        ),
    ] = None,
    _client_certificate: Annotated[
        str | None,
        typer.Option(
            "--client-certificate",
            metavar="FILE",
            callback=_keep(CERTIFICATE_VARIABLE),
            expose_value=False,
            help=f"PEM file of the certificate that is shown to an https server; else {CERTIFICATE_VARIABLE}.",
        ),
    ] = None,
    _client_key: Annotated[
        str | None,
        typer.Option(
            "--client-key",
            metavar="FILE",
            callback=_keep(KEY_VARIABLE),
            expose_value=False,
            help=f"PEM file of mode 0600 with its key, if that is another file; else {KEY_VARIABLE}.",
        ),
    ] = None,
) -> None:
    """Lend its options to the commands."""
