"""`twophase server`: run the coordinator until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase.core.credentials import without_credentials
from twophase.core.errors import ConfigurationError
from twophase.core.printable import drop_output
from twophase.core.shell import argument
from twophase.server.app import EXIT_CONFIGURATION, run
from twophase.server.setting_sources import CONFIG_VARIABLE, load
from twophase.server.setting_table import describe
from twophase.server.settings import Settings
from twophase.server.workers.supervisor import supervise

app = typer.Typer(rich_markup_mode=None, add_completion=False)


_EXAMPLES: Final = """\b
Examples:
  twophase server
  twophase server --store sqlite:////var/lib/twophase.db --host 0.0.0.0 --tokens /etc/twophase/tokens.toml
  twophase server --store file:/etc/twophase/store-url --workers 2
  twophase server --http-port 0 --set retry_cap_ms=10000
  TWOPHASE_LOG_LEVEL=warning twophase server --config twophase.toml"""


def _end() -> str:
    """Return examples and all settings, for the end of the help text."""
    lines = [
        _EXAMPLES,
        "",
        "\b",
        "Every setting can be given on the command line (--set name=value), in the",
        f"environment, or in the --config file (TOML, also named by {CONFIG_VARIABLE});",
        "the first of these that has it counts. Names end in their unit.",
    ]
    for setting in describe():
        lines += ["", "\b", f"{setting.variable} (default {setting.default})", f"    {setting.description}"]
    return "\n".join(lines)


@app.command(epilog=_end())
def server(
    store: Annotated[
        str | None,
        typer.Option(help="Store URL, such as sqlite:///twophase.db, or env:NAME or file:PATH that holds it."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", "--port", help="HTTP port; 0 picks a free one.")
    ] = None,
    grpc_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="gRPC port; 0 picks a free one, off disables gRPC.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes on the same ports; more than one needs PostgreSQL.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the clients' tokens, see `twophase token add`.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.", envvar=CONFIG_VARIABLE)] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    drain_timeout_ms: Annotated[int | None, typer.Option(help="Time limit of a graceful stop.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; may be repeated.")
    ] = None,
    *,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Accept every client on an address that is not loopback.")
    ] = False,
) -> None:
    """Run the coordinator until SIGTERM or SIGINT.

    Exit codes: 0 stopped cleanly, 1 something hung beyond the time limit of the stop, 2 a setting cannot work, 3 the
    store refuses (locked, damaged, newer, read-only, full), 4 another process took this node's slot.
    """
    named = {
        "store": store,
        "host": host,
        "tokens": tokens,
        "allow_anonymous": allow_anonymous or None,
        "http_port": http_port,
        "grpc_port": grpc_port,
        "workers": workers,
        "log_level": log_level,
        "drain_timeout_ms": drain_timeout_ms,
    }
    try:
        settings = _settings(named, set_ or [], config)
    except ConfigurationError as error:
        echo(str(error), err=True)
        sys.exit(EXIT_CONFIGURATION)
    if config is not None and _shows_a_password(config):
        name = argument(str(config))
        echo(
            f"warning: {config} holds a password, and every user of this machine may read it: chmod 600 {name}",
            err=True,
        )
    code = run(settings) if settings.workers == 1 else supervise(settings)
    drop_output()  # of log lines that could not be written
    sys.exit(code)


def _shows_a_password(config: Path) -> bool:
    """Return True when every user of this machine may read a password in the file."""
    text = config.read_text(encoding="utf-8")
    return bool(config.stat().st_mode & stat.S_IROTH) and without_credentials(text) != text


def _settings(named: dict[str, str | int | None], others: list[str], config: Path | None) -> Settings:
    command_line: dict[str, object] = dict(named)
    for other in others:
        name, separator, value = other.partition("=")
        if not separator:
            raise ConfigurationError(f"--set {other}: write --set name=value.")
        command_line[name] = value
    return load(command_line, os.environ, config)
