"""`twophase messages redirect`: another address for branches or the check-back.

It redirects open branches, of one message or of many.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final, NoReturn

import msgspec
import typer

from twophase.cli.console import echo
from twophase.cli.operating.acting import (
    ByOption,
    GidsArgument,
    ReasonOption,
    YesOption,
    confirm,
    count_of,
    me,
    pages,
    perform,
)
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
    DestinationOption,
    Filters,
    PrefixOption,
    UnfinishedStateOption,
    require_unfinished,
)
from twophase.core.operating import OneMessage, Redirected, Redirecting, ShownMessage
from twophase.core.redirect import begins
from twophase.core.shell import argument

REDIRECT_EXAMPLES: Final = """\b
Examples:
  twophase messages redirect order-17 --to http://mail:8080/send --reason "the path was wrong"
  twophase messages redirect order-17 --branch 02 --to http://mail:8080/send
  twophase messages redirect order-17 --check --to http://orders:8000/twophase/check
  twophase messages redirect --from http://old-mail:8080 --to http://mail:8080 --dry-run
  twophase messages redirect --check --from http://localhost:1 --to http://orders:8000

Branches keep their ids, and those that have succeeded stay so. A check address still names the database that it
named (barrier=), unless the new one names another. Calls in progress at the old address no longer count."""


def redirect(
    gids: GidsArgument = None,
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The new address, or its beginning with --from.")] = "",
    branch: Annotated[str, typer.Option("--branch", metavar="ID", help="Which branch, such as 01 or 02-01.")] = "",
    beginning: Annotated[
        str,
        typer.Option("--from", metavar="URL", help="How the old address begins; --to replaces this beginning."),
    ] = "",
    state: UnfinishedStateOption = None,
    gid_prefix: PrefixOption = "",
    destination: DestinationOption = "",
    created_after: AfterOption = "",
    created_before: BeforeOption = "",
    reason: ReasonOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    check: Annotated[bool, typer.Option("--check", help="The check address of prepared messages instead.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Call unfinished messages at another address.

    The old one was mistaken, or has moved. Without a GID: every message that goes to --from (or --destination) and
    matches the filters, after a confirmation.
    """
    beginning = beginning or destination
    _check_words(gids or [], to, branch, beginning, check=check)
    api = Api(server)
    request = Redirecting(by or me(), reason, to, branch, beginning, check, dry_run=True)
    found: list[ShownMessage] = []
    if not gids:
        filters = Filters.of(
            require_unfinished(state) or (["prepared"] if check else sorted(UNFINISHED)),
            gid_prefix,
            "" if check else (destination or beginning),
            created_after,
            created_before,
            parked=None,
            check=beginning if check else "",
        )
        found = _going_to(api, filters, beginning, check=check)
    chosen = gids or [message.gid for message in found]
    if not chosen:
        echo("[]" if as_json else f"No unfinished message goes to {beginning}.")
        return
    # First a dry run, of one message for all: a refusal comes before the question for confirmation.
    tried, refused = perform(api, "redirect", chosen if dry_run or gids else chosen[:1], request, Redirected)
    if not dry_run:
        if not gids and not yes:
            such = f"{count_of(chosen, 'unfinished')}, such as {chosen[0]}{_first_move(tried)}"
            confirm(f"Redirect {such}, from {beginning} to {to}?")
        accepted = [one.gid for one in tried] if gids else chosen
        real = msgspec.structs.replace(request, dry_run=False)
        tried, refused_now = perform(api, "redirect", accepted, real, Redirected)
        refused += refused_now
    _tell(tried, dry_run=dry_run, as_json=as_json, refused=refused)
    if not as_json and not dry_run:
        moved = dict.fromkeys(one.gid for one in tried)
        parked = (
            _parked_of(server, list(moved)) if gids else [one.gid for one in found if one.parked and one.gid in moved]
        )
        _tell_parked(parked)
    if refused:
        raise typer.Exit(EXIT_REFUSED)


def _going_to(api: Api, filters: Filters, beginning: str, *, check: bool) -> list[ShownMessage]:
    """Return the messages that pass the filters, and go there."""
    return [
        message
        for page in pages(api, filters, "", sys.maxsize)
        for message in page.messages
        if _goes_to(message, beginning, check=check)
    ]


def _parked_of(server: str, gids: list[str]) -> list[str]:
    """Return those that are parked.

    None where that cannot be seen, as with a token that may only act.
    """
    api = Api(server, _ends_silently)
    try:
        return [gid for gid in gids if api.get(path_of("messages", gid), OneMessage).message.parked]
    except typer.Exit:
        return []


def _ends_silently(_text: str, code: int) -> NoReturn:
    raise typer.Exit(code)


def _tell_parked(gids: list[str]) -> None:
    """Say of parked messages that another address alone continues none."""
    if len(gids) == 1:
        echo(f"{gids[0]} is parked until it is redriven: twophase messages redrive {argument(gids[0])}")
    elif gids:
        echo(f"{len(gids)} of them are parked until they are redriven: twophase messages redrive")


def _check_words(gids: list[str], to: str, branch: str, beginning: str, *, check: bool) -> None:
    """End the process when the options do not name one meaning."""
    wrong = ""
    if not to:
        wrong = "--to: the new address is missing."
    elif branch and check:
        wrong = "--check does not concern a branch: leave out one of the two."
    elif not gids and branch:
        wrong = "--branch needs the message's gid; for many messages say --from URL."
    elif not gids and not beginning:
        wrong = "Name a message, or say --from URL for all that go there."
    if wrong:
        echo(wrong, err=True)
        raise typer.Exit(2)


def _goes_to(one: ShownMessage, beginning: str, *, check: bool) -> bool:
    if one.state not in UNFINISHED:
        return False
    if check:
        return begins(one.check_url, beginning)
    return any(begins(branch.url, beginning) for branch in one.branches if not branch.done)


def _first_move(tried: list[Redirected]) -> str:
    """Return the whole addresses of an example, as they were and will be."""
    moves = [move for one in tried for move in one.moves]
    return f" ({moves[0].before} -> {moves[0].after})" if moves else ""


def _tell(answers: list[Redirected], *, refused: int, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(answers)
    else:
        for one in answers:
            for move in one.moves:
                what = "check-back" if move.branch_id == "00" else f"branch {move.branch_id}"
                echo(f"{one.gid}, {what}: {move.before} -> {move.after}")
        moved = sum(bool(answer.moves) for answer in answers)
        there = len(answers) - moved
        parts = [f"{moved} {'would be redirected' if dry_run else 'redirected'}"]
        parts += [f"{there} went there already"] if there else []
        parts += [f"{refused} refused"] if refused else []
        echo(f"{', '.join(parts)}{': a dry run, nothing is changed' if dry_run else ''}.")
