"""The table of all commands of `twophase`, each imported only when it is used.

So `twophase barrier install` needs no server's libraries, and a command whose extra is not installed names the extra to
install instead of failing on an import. Other distributions add commands (`plugins`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from twophase.cli import plugins, process_list
from twophase.cli.connection_options import with_connection_options
from twophase.cli.console import echo, flush_output, guard_streams
from twophase.cli.error_text import error_text
from twophase.core.errors import TwophaseError
from twophase.core.printable import OutputFailed, drop_output


class LazyCommand(NamedTuple):
    """One command: the module of its `app`, and the extra that brings its libraries."""

    name: str
    module: str
    extra: str
    summary: str


COMMANDS: Final[tuple[LazyCommand, ...]] = (
    LazyCommand("server", "twophase.cli.server", "server", "Run the coordinator."),
    LazyCommand("migrate", "twophase.cli.migrate", "server", "Create or upgrade the schema of the store."),
    LazyCommand("token", "twophase.cli.token", "server", "Create, list and revoke the tokens of clients."),
    LazyCommand("limits", "twophase.cli.limits", "server", "Print every limit of the protocol."),
    LazyCommand(
        "doctor", "twophase.cli.doctor.command", "operator", "Check a coordinator, a check address, a database."
    ),
    LazyCommand("status", "twophase.cli.operating.status", "operator", "Show a server at a glance."),
    LazyCommand("messages", "twophase.cli.operating.messages", "operator", "Find messages, and unblock them."),
    LazyCommand("explain", "twophase.cli.operating.explain", "operator", "Explain what a message waits for."),
    LazyCommand(
        "topic", "twophase.cli.operating.topic", "operator", "Show and change the subscribers of topic://NAME."
    ),
    LazyCommand("queues", "twophase.cli.operating.queues", "operator", "Show and change topics of queues."),
    LazyCommand("groups", "twophase.cli.operating.groups", "operator", "Show and change groups of consumers."),
    LazyCommand("halves", "twophase.cli.operating.halves", "operator", "Show half messages, and why they wait."),
    LazyCommand("letters", "twophase.cli.operating.letters", "operator", "Show and redrive dead letters of groups."),
    LazyCommand("log", "twophase.cli.operating.log", "operator", "Show the audit log, and verify its chain."),
    LazyCommand(
        "import", "twophase.dtm_import.command", "dtm-import", "Import unfinished messages and topics from dtm."
    ),
    LazyCommand("barrier", "twophase.cli.barrier", "sqlalchemy", "Install and clean barrier tables."),
)
EXAMPLES: Final = """\b
Examples:
  twophase server                          the coordinator on 127.0.0.1:36789, its messages in ./twophase.db
  twophase barrier install sqlite:///bank.db
  twophase spark audit --coordinator sqlite:///twophase.db --producer a=sqlite:///bank.db
  twophase COMMAND --help                  options and examples of a command"""
_BY_NAME: Final = {command.name: command for command in COMMANDS}
EXIT_FAILED: Final = 1
EXIT_INCOMPLETE: Final = 2
"""A library is missing.

For every command this is the exit code of one that could not do its work.
"""


class LazyGroup(TyperGroup):
    """Finds commands in the table, then among the plug-ins, instead of in memory."""

    _names_only = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- the base class' signature
        """Return all names: the table's in its order, then the plug-ins'."""
        return list(_summaries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 -- the same
        """Return the command of a name, imported now; None for an unknown name.

        Raises:
            SystemExit: a library it needs is not installed.
        """
        if self._names_only:
            return TyperCommand(cmd_name, help=_summaries()[cmd_name])
        command = _BY_NAME.get(cmd_name)
        if command is not None:
            return _load(command)
        plugin = plugins.plugins().get(cmd_name)
        return None if plugin is None else _load_plugin(plugin)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete a command's name without importing any command."""
        self._names_only = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._names_only = False

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 -- the same
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_summaries().items()))


def _summaries() -> dict[str, str]:
    """Return every command's line of help; the table's commands win over plug-ins."""
    found = {name: plugin.summary for name, plugin in plugins.plugins().items() if name not in _BY_NAME}
    return {command.name: command.summary for command in COMMANDS} | found


def _load(command: LazyCommand) -> Any:
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".", 1)[0] == "twophase" and error.name != command.module:
            raise
        missing = "this installation" if error.name == command.module else f"the package {error.name!r}"
        remedy = f"pip install 'twophase[{command.extra}]'"
        echo(f"twophase {command.name}: {missing} is incomplete or missing. Run: {remedy}", err=True)
        raise SystemExit(EXIT_INCOMPLETE) from error
    built = typer.main.get_command(module.app)
    built.name = command.name
    return with_connection_options(built)


def _load_plugin(plugin: plugins.Plugin) -> Any:
    try:
        return plugins.load(plugin)
    except plugins.PluginBroken as error:
        echo(f"twophase {plugin.name}: {error}", err=True)
        raise SystemExit(EXIT_INCOMPLETE) from error


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A service commits its local transaction, and the calls that must follow it happen: both or neither.",
    epilog=EXAMPLES,
)


def _say_version(requested: bool) -> None:  # noqa: FBT001 -- typer passes the option's value
    if requested:
        echo(f"twophase {version('twophase')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def main() -> None:
    """Run the `twophase` command.

    An error of twophase is one line and an exit code, never a trace; so is an output that cannot be written. What the
    command writes is its user's alone: stores, their logs and locks, archives and reports hold payloads.
    """
    os.umask(0o077)
    guard_streams()
    try:
        try:
            _warn_of(sys.argv[1:])
            app(prog_name="twophase")  # also of `python -m twophase`: completion is bound to this name
        except TwophaseError as error:
            echo(error_text(error), err=True)
            sys.exit(EXIT_FAILED)
        finally:
            flush_output()
    except OutputFailed as error:
        with contextlib.suppress(OSError):
            echo(f"The output cannot be written: {error.strerror}. What the command did before stays done.", err=True)
        drop_output()
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:
        drop_output()
        sys.exit(EXIT_FAILED)


def _warn_of(arguments: list[str]) -> None:
    """Print what every user of this machine may read in a command's arguments."""
    if arguments and arguments[0] in _BY_NAME:
        for warning in process_list.warnings(arguments):
            echo(warning, err=True)
