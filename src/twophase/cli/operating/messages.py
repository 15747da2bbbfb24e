"""`twophase messages …`: find, inspect and unblock messages of a running server.

Acts are stop, park, redrive and retry. Promise: no message changes that was not named or confirmed, and each change is
recorded with its operator and reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from twophase.cli.console import echo, on_terminal, plain_console
from twophase.cli.operating.acting import (
    Asked,
    ByOption,
    ReasonOption,
    confirm,
    me,
    pages,
    perform,
    several,
    state_in_words,
)
from twophase.cli.operating.explanation import what_is_left_uncalled
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
    UNFINISHED,
    AfterOption,
    BeforeOption,
    CheckOption,
    DestinationOption,
    Filters,
    PrefixOption,
    StateOption,
)
from twophase.cli.operating.message_tables import one_message, payload_of, table_of
from twophase.cli.operating.redirecting import REDIRECT_EXAMPLES, redirect
from twophase.cli.operating.watching import EveryOption, WatchOption, repeat
from twophase.core.operating import Acted, ActRequest, ManyMessages, OneMessage, ShownMessage
from twophase.core.shell import argument

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
  twophase messages list --parked --watch
  twophase messages list --state submitted --destination http://mail:8080 --created-before 10m
  twophase messages list --gid-prefix order- --limit 1000 --json | jq -r '.messages[].gid'"""


@app.command(name="list", epilog=_LIST_EXAMPLES)
def list_messages(
    state: StateOption = None,
    gid_prefix: PrefixOption = "",
    destination: DestinationOption = "",
    check_address: CheckOption = "",
    created_after: AfterOption = "",
    created_before: BeforeOption = "",
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 50,
    position: Annotated[str, typer.Option(help="Continue here: the position that the previous list ended with.")] = "",
    server: ServerOption = DEFAULT_SERVER,
    every: EveryOption = 2.0,
    *,
    parked: Annotated[
        bool | None, typer.Option("--parked/--not-parked", help="Only messages that are parked, or that are not.")
    ] = None,
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """List messages: unfinished ones by gid, then finished ones, the newest first."""
    filters = Filters.of(
        state, gid_prefix, destination, created_after, created_before, parked=parked, check=check_address
    )
    api = Api(server)

    def print_once() -> None:
        found: list[ShownMessage] = []
        page = ManyMessages([], position, 0)
        for page in pages(api, filters, position, limit):
            found += page.messages
        page = ManyMessages(found, page.position, page.now_ms)
        if as_json:
            print_json(page, in_one_line=watch)
        else:
            _print_page(page)

    repeat(print_once, watch=watch, every_s=every, as_json=as_json)


def _print_page(page: ManyMessages) -> None:
    if page.messages:
        _console().print(table_of(page.messages, page.now_ms))
    else:
        echo("No message fits.")
    if page.position:
        echo(f"There may be more: repeat this with --position {shlex.quote(page.position)}")


_SHOW_EXAMPLES: Final = """\b
Examples:
  twophase messages show order-17
  twophase messages show order-17 --json
  twophase messages show order-17 --payload
  twophase messages show order-17 --payload --json | jq -r '.message.branches[0].payload'"""


@app.command(epilog=_SHOW_EXAMPLES)
def show(
    gid: GidArgument,
    server: ServerOption = DEFAULT_SERVER,
    *,
    payload: Annotated[
        bool, typer.Option("--payload", help="Show what each branch is sent, too. It may hold personal data.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show one message: its branches, and what went wrong.

    In words: twophase explain GID.
    """
    query = {"payload": "true"} if payload else None
    found = Api(server).get(path_of("messages", gid), OneMessage, query=query)
    if as_json:
        print_json(found)
        return
    for part in one_message(found.message, found.now_ms):
        _console().print(part)
    for branch in found.message.branches if payload else ():
        echo(payload_of(branch))


_STOP_EXAMPLES: Final = """\b
Examples:
  twophase messages stop order-17 --reason "cancelled by the customer"
  twophase messages stop order-17 order-18 --yes
  twophase messages stop --all --destination http://mail:8080 --created-before 7d --dry-run

The producer of a prepared message is asked first. If its transaction has committed, the message is delivered and the
stop is refused. If it gives no verdict, nothing is stopped either; with --override your decision counts then, and is
recorded as yours."""
_WITHOUT_VERDICT: Final = {
    False: "without its verdict nothing is stopped",
    True: "without its verdict it fails, although it may have committed",
}
_WITHOUT_PRODUCER: Final = {
    False: "no producer can be asked, so nothing is stopped",
    True: "no producer can be asked, and it fails, although its transaction may have committed",
}
_STOP_ALL_EFFECT: Final = (
    ": producers of prepared ones are asked first; the remaining branches of submitted ones are no longer called, "
    "although their transactions, if they have one, are committed"
)


@app.command(epilog=_STOP_EXAMPLES)
@partial(several, overrides=True)
def stop(asked: Asked) -> None:
    """Make unfinished messages fail: no branch is called any more.

    With --all, those that match the filters.
    """
    api = Api(asked.server)
    if asked.everything and not asked.is_filtered:
        echo("stop --all: name a filter, such as --destination or --gid-prefix.", err=True)
        raise typer.Exit(2)
    named = _named(api, asked.gids)
    refused = len(set(asked.gids)) - len(named)
    for gid in [gid for gid, one in named.items() if one.state not in UNFINISHED]:
        refused += 1
        echo(f"{gid} has {state_in_words(named.pop(gid).state)}: it is final, and cannot be stopped.", err=True)
    left = msgspec.structs.replace(asked, gids=list(named))
    if asked.gids and not left.gids:
        raise typer.Exit(EXIT_REFUSED)
    filters = asked.filters(parked=None, states=asked.states or sorted(UNFINISHED))
    chosen = left.chosen(api, "Stop", "unfinished", filters, _STOP_ALL_EFFECT)
    # Who was told that a message is prepared, or asked for such ones alone, does not stop one that is submitted since.
    only = msgspec.structs.replace(asked.request, prepared_only=True)
    bodies = dict.fromkeys(chosen, only) if asked.everything and asked.states == ["prepared"] else {}
    if asked.gids and not asked.yes:
        bodies = {gid: only for gid in chosen if named[gid].state == "prepared"}
        for gid in chosen:
            effect = _effect_of_stop(named[gid], override=asked.request.override)
            confirm(f"Stop {gid}, which is {named[gid].state}: {effect}?")
    _act(api, "stop", "stopped", chosen, asked, refused, bodies)


def _named(api: Api, gids: list[str]) -> dict[str, ShownMessage]:
    """Return the messages that there are.

    Each unknown one has been reported.
    """
    found: dict[str, ShownMessage] = {}
    for gid in gids:
        try:
            found[gid] = api.get(path_of("messages", gid), OneMessage).message
        except typer.Exit as refusal:
            if refusal.exit_code != EXIT_REFUSED:
                raise
    return found


def _effect_of_stop(message: ShownMessage, *, override: bool) -> str:
    if message.state == "prepared" and not message.check_url:
        return _WITHOUT_PRODUCER[override]
    if message.state == "prepared":
        return f"its producer is asked first; {_WITHOUT_VERDICT[override]}"
    return what_is_left_uncalled(message)


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
    """Set messages aside until they are redriven.

    No producer is asked and no branch is called.
    """
    api, request = Api(server), ActRequest(by or me(), reason)
    acted, refused = perform(api, "park", gids, request, Acted)
    _tell(acted, refused, "parked", as_json=as_json)


_REDRIVE_EXAMPLES: Final = """\b
Examples:
  twophase messages redrive order-17
  twophase messages redrive --all --destination http://mail:8080 --reason "mail is back"
  twophase messages redrive --all --yes"""


@app.command(epilog=_REDRIVE_EXAMPLES)
@several
def redrive(asked: Asked) -> None:
    """Resume parked messages with all their attempts.

    With --all, those that match the filters.
    """
    api = Api(asked.server)
    chosen = asked.chosen(api, "Redrive", "parked", asked.filters(parked=True))
    _act(api, "redrive", "redriven", chosen, asked)


_RETRY_EXAMPLES: Final = """\b
Examples:
  twophase messages retry-now order-17
  twophase messages retry-now --all --state submitted --destination http://mail:8080

Nothing is tried early: no producer is asked before timeout_to_fail, no branch is called before its delay."""


@app.command(name="retry-now", epilog=_RETRY_EXAMPLES)
@several
def retry_now(asked: Asked) -> None:
    """Retry now instead of after the pause.

    With --all, the unfinished ones that match the filters.
    """
    api = Api(asked.server)
    filters = asked.filters(parked=False, states=asked.states or ["prepared", "submitted"])
    chosen = asked.chosen(api, "Try now", "unfinished", filters)
    _act(api, "retry-now", "tried as soon as it may be", chosen, asked)


app.command(name="redirect", epilog=REDIRECT_EXAMPLES)(redirect)


def _act(
    api: Api,
    act: str,
    done: str,
    gids: list[str],
    asked: Asked,
    refused: int = 0,
    bodies: Mapping[str, object] | None = None,
) -> None:
    if asked.dry_run:
        return
    acted, refused_now = perform(api, act, gids, asked.request, Acted, bodies)
    _tell(acted, refused + refused_now, done, as_json=asked.as_json)


def _tell(acted: list[Acted], refused: int, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(acted)
    elif len(acted) == 1 and not refused:
        (one,) = acted
        state = state_in_words(one.state)
        echo(f"{one.gid} is {done}; its state is {state}. See: twophase explain {argument(one.gid)}")
    else:
        echo(f"{len(acted)} {done}{f', {refused} refused' if refused else ''}.")
    if refused:
        raise typer.Exit(EXIT_REFUSED)


def _console() -> Console:
    return plain_console(width=None if on_terminal() else _WIDTH_BESIDE_TERMINALS)
