"""`twophase messages …`: look for messages at a running server, see one, and stop, park, redrive or retry it.

Promise: nothing is changed that was not named or confirmed, and what is changed is recorded with who did it and why.
"""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress

from twophase.cli.operating.acting import Asked, ByOption, ReasonOption, YesOption, confirm, me, pages, several
from twophase.cli.operating.http_api import (
    DEFAULT_SERVER,
    EXIT_REFUSED,
    Api,
    JsonOption,
    ServerOption,
    path_of,
    print_json,
)
from twophase.cli.operating.message_filters import (
    AfterOption,
    BeforeOption,
    DestinationOption,
    Filters,
    PrefixOption,
    StateOption,
)
from twophase.cli.operating.message_tables import one_message, table_of
from twophase.core.operating import Acted, ManyMessages, OneMessage, Said, ShownMessage

app = typer.Typer(
    name="messages",
    help="Messages of a running server: find them, inspect one, unblock them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
_WIDTH_BESIDE_TERMINALS: Final = 160

GidArgument = Annotated[str, typer.Argument(help="The message's gid.")]

_LIST_EXAMPLES: Final = """\b
Examples:
  twophase messages list
  twophase messages list --parked
  twophase messages list --state submitted --destination http://mail:8080 --created-before 10m
  twophase messages list --gid-prefix order- --limit 1000 --json | jq -r '.messages[].gid'"""


@app.command(name="list", epilog=_LIST_EXAMPLES)
def list_messages(
    state: StateOption = None,
    gid_prefix: PrefixOption = "",
    destination: DestinationOption = "",
    created_after: AfterOption = "",
    created_before: BeforeOption = "",
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 50,
    position: Annotated[str, typer.Option(help="Continue here: the position that the previous list ended with.")] = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    parked: Annotated[
        bool | None, typer.Option("--parked/--not-parked", help="Only messages that are parked, or that are not.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List messages: unfinished ones by gid, then finished ones, the newest first."""
    filters = Filters.of(state, gid_prefix, destination, created_after, created_before, parked=parked)
    found: list[ShownMessage] = []
    page = ManyMessages([], position, 0)
    for page in pages(Api(server), filters, position, limit):
        found += page.messages
    if as_json:
        print_json(ManyMessages(found, page.position, page.now_ms))
        return
    if found:
        _console().print(table_of(found, page.now_ms))
    else:
        typer.echo("No message fits.")
    if page.position:
        typer.echo(f"There may be more: repeat this with --position {shlex.quote(page.position)}")


_SHOW_EXAMPLES: Final = """\b
Examples:
  twophase messages show order-17
  twophase messages show order-17 --json"""


@app.command(epilog=_SHOW_EXAMPLES)
def show(gid: GidArgument, server: ServerOption = DEFAULT_SERVER, *, as_json: JsonOption = False) -> None:
    """Show one message: its branches, and what went wrong. In words: twophase explain GID."""
    found = Api(server).get(path_of("messages", gid), OneMessage)
    if as_json:
        print_json(found)
        return
    for part in one_message(found.message, found.now_ms):
        _console().print(part)


_STOP_EXAMPLES: Final = """\b
Examples:
  twophase messages stop order-17 --reason "cancelled by the customer"
  twophase messages stop order-17 order-18 --yes

The producer of a prepared message is asked first. If its transaction has committed, the message is delivered and the
stop is refused; if it gives no answer, your decision counts and is recorded as yours."""
_STOP_EFFECTS: Final = {
    "prepared": ": its producer is asked first; if there is no answer it fails, although it may have committed",
    "submitted": ": its transaction is committed, and would be delivered only in part",
}


@app.command(epilog=_STOP_EXAMPLES)
def stop(
    gids: Annotated[list[str], typer.Argument(metavar="GID...", help="The messages' gids.")],
    reason: ReasonOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make unfinished messages fail: their branches are not called any more."""
    api = Api(server)
    if not yes:
        for gid in gids:
            state = api.get(path_of("messages", gid), OneMessage).message.state
            confirm(f"Stop {gid}, which is {state}{_STOP_EFFECTS.get(state, '')}?")
    _act(api, "stop", "stopped", gids, Said(by or me(), reason), as_json=as_json)


_PARK_EXAMPLES: Final = """\b
Examples:
  twophase messages park order-17 --reason "the mail server is being moved"
"""


@app.command(epilog=_PARK_EXAMPLES)
def park(
    gids: Annotated[list[str], typer.Argument(metavar="GID...", help="The messages' gids.")],
    reason: ReasonOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    as_json: JsonOption = False,
) -> None:
    """Set messages aside until they are redriven: no producer is asked and no branch is called."""
    _act(Api(server), "park", "parked", gids, Said(by or me(), reason), as_json=as_json)


_REDRIVE_EXAMPLES: Final = """\b
Examples:
  twophase messages redrive order-17
  twophase messages redrive --all --destination http://mail:8080 --reason "mail is back"
  twophase messages redrive --all --yes"""


@app.command(epilog=_REDRIVE_EXAMPLES)
@several
def redrive(asked: Asked) -> None:
    """Resume parked messages with all their attempts; with --all, those that match the filters."""
    api = Api(asked.server)
    chosen = asked.chosen(api, "Redrive", "parked", asked.filters(parked=True))
    _act(api, "redrive", "redriven", chosen, asked.said, as_json=asked.as_json)


_RETRY_EXAMPLES: Final = """\b
Examples:
  twophase messages retry-now order-17
  twophase messages retry-now --all --state submitted --destination http://mail:8080

Nothing is tried early: no producer is asked before timeout_to_fail, no branch is called before its delay."""


@app.command(name="retry-now", epilog=_RETRY_EXAMPLES)
@several
def retry_now(asked: Asked) -> None:
    """Retry now instead of after the pause; with --all, the unfinished ones that match the filters."""
    api = Api(asked.server)
    filters = asked.filters(parked=False, states=asked.states or ["prepared", "submitted"])
    chosen = asked.chosen(api, "Try now", "unfinished", filters)
    _act(api, "retry-now", "tried as soon as it may be", chosen, asked.said, as_json=asked.as_json)


def _act(api: Api, act: str, done: str, gids: list[str], said: Said, *, as_json: bool) -> None:
    acted: list[Acted] = []
    refused = 0
    quiet = len(gids) < 2 or not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task(act, total=len(gids))
        for gid in gids:
            try:
                acted.append(api.post(path_of("messages", gid, act), said, Acted))
            except typer.Exit as refusal:
                if refusal.exit_code != EXIT_REFUSED or len(gids) == 1:
                    raise
                refused += 1
            progress.advance(task)
    if as_json:
        print_json(acted)
    elif len(gids) == 1:
        typer.echo(f"{gids[0]} is {done}; its state is {acted[0].state}. See: twophase explain {shlex.quote(gids[0])}")
    else:
        typer.echo(f"{len(acted)} {done}{f', {refused} refused' if refused else ''}.")
    if refused:
        raise typer.Exit(EXIT_REFUSED)


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_BESIDE_TERMINALS)
