"""Commands that act on messages.

They act on those that were named, or on all that match the filters, after a confirmation. Their options are declared
once, in `several`.
"""

from __future__ import annotations

import functools
import getpass
import inspect
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
import typer
from rich.progress import Progress

from twophase.cli.console import confirmed, echo, on_terminal, plain_console
from twophase.cli.operating.http_api import (
    DEFAULT_SERVER,
    EXIT_REFUSED,
    Api,
    JsonOption,
    ServerOption,
    path_of,
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
from twophase.core.operating import ManyMessages, StopRequest
from twophase.core.shell import argument

_PAGE_ROWS: Final = 500
T = TypeVar("T")

GidsArgument = Annotated[list[str] | None, typer.Argument(metavar="[GID]...", help="The messages' gids.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why you do it; recorded with the message.")]
ByOption = Annotated[str, typer.Option("--by", help="Who does it; recorded. Default: your user name and this machine.")]
AllOption = Annotated[bool, typer.Option("--all", help="Every message that matches the filters.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print the messages that would be changed.")]
OverrideOption = Annotated[
    bool,
    typer.Option("--override", help="Stop a prepared message although its producer gives no verdict."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class Asked(msgspec.Struct, frozen=True):
    """The options of a command that acts on several messages."""

    gids: list[str]
    states: list[str]
    gid_prefix: str
    destination: str
    created_after: str
    created_before: str
    request: StopRequest
    server: str
    everything: bool
    yes: bool
    dry_run: bool
    as_json: bool

    @property
    def is_filtered(self) -> bool:
        """True when a filter restricts the messages."""
        return bool(self.states or self.gid_prefix or self.destination or self.created_after or self.created_before)

    def filters(self, *, parked: bool | None, states: list[str] | None = None) -> Filters:
        """Return the filters of the options, with those of the command itself.

        The process ends when a time cannot be read.
        """
        return Filters.of(
            states or self.states,
            self.gid_prefix,
            self.destination,
            self.created_after,
            self.created_before,
            parked=parked,
        )

    def chosen(self, api: Api, verb: str, kind: str, filters: Filters, effect: str = "") -> list[str]:
        """Return the messages named, or all that match after a confirmation.

        With --dry-run none are returned; they are only listed.
        """
        if bool(self.gids) == self.everything:
            echo("Name messages, or use --all with filters: one of the two.", err=True)
            raise typer.Exit(2)
        found = self.gids or [
            message.gid
            for page in pages(api, filters, "", sys.maxsize)
            for message in page.messages
            if message.state in UNFINISHED
        ]
        if self.dry_run:
            echo("\n".join([*found, f"{verb} {count_of(found, kind)}: a dry run, nothing is changed."]))
            return []
        if found and not self.gids and not self.yes:
            confirm(f"{verb} {count_of(found, kind)}, such as {found[0]}{effect}?")
        return found


def several(command: Callable[[Asked], None], *, overrides: bool = False) -> Callable[..., None]:
    """Return a command that acts on several messages, with the options for them.

    `overrides`: one of them is --override.
    """

    def wrapped(
        gids: GidsArgument = None,
        state: UnfinishedStateOption = None,
        gid_prefix: PrefixOption = "",
        destination: DestinationOption = "",
        created_after: AfterOption = "",
        created_before: BeforeOption = "",
        reason: ReasonOption = "",
        by: ByOption = "",
        server: ServerOption = DEFAULT_SERVER,
        *,
        everything: AllOption = False,
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        as_json: JsonOption = False,
        override: OverrideOption = False,
    ) -> None:
        command(
            Asked(
                gids=gids or [],
                states=require_unfinished(state),
                gid_prefix=gid_prefix,
                destination=destination,
                created_after=created_after,
                created_before=created_before,
                request=StopRequest(by or me(), reason, override),
                server=server,
                everything=everything,
                yes=yes,
                dry_run=dry_run,
                as_json=as_json,
            )
        )

    # Not `functools.wraps`: typer would read the options of the command within.
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    if not overrides:
        signature = inspect.signature(wrapped, eval_str=True)
        shown = [one for one in signature.parameters.values() if one.name != "override"]
        wrapped.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]  # typer reads it
    return wrapped


def pages(api: Api, filters: Filters, position: str, limit: int) -> Iterator[ManyMessages]:
    """Yield pages of up to `limit` messages together; always one page at least."""
    left = limit
    while True:
        rows = min(left, _PAGE_ROWS)
        query = filters.query | {"limit": str(rows)} | ({"position": position} if position else {})
        page = api.get(path_of("messages"), ManyMessages, query=query)
        yield page
        left -= len(page.messages)
        position = page.position
        if not position or left <= 0:
            return


def perform(
    api: Api, act: str, gids: list[str], body: object, answer: type[T], bodies: Mapping[str, object] | None = None
) -> tuple[list[T], int]:
    """Do an act to each message; return the answers and the number of refusals.

    `bodies`: those of messages with a body of their own, by gid.

    Each refusal has been printed. A single message that is refused ends the process, and so does a server that does not
    answer; what was done to the others before is printed then, as on Ctrl-C.
    """
    gids = list(dict.fromkeys(gids))  # named twice it is one message, and one act
    answers: list[T] = []
    refused = 0
    quiet = len(gids) < 2 or not on_terminal(stderr=True)
    with Progress(console=plain_console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task(act, total=len(gids))
        for gid in gids:
            worded = functools.partial(_refusal_of, gid, one_of_many=len(gids) > 1)
            sent = (bodies or {}).get(gid, body)
            try:
                answers.append(api.post(path_of("messages", gid, act), sent, answer, worded=worded))
            except typer.Exit as refusal:
                if refusal.exit_code != EXIT_REFUSED or len(gids) == 1:
                    _tell_of_the_others(act, gid, len(answers), refused, len(gids))
                    raise
                refused += 1
            except KeyboardInterrupt:
                _tell_of_the_others(act, gid, len(answers), refused, len(gids))
                raise
            progress.advance(task)
    return answers, refused


def _tell_of_the_others(act: str, gid: str, done: int, refused: int, all_of_them: int) -> None:
    """Print how far an act on several messages came, when it ends in the middle."""
    if all_of_them > 1:
        echo(
            f"{act}: {done} of {all_of_them} messages are done{f', {refused} refused' if refused else ''}. There is no "
            f"answer about {gid}, and the rest was not tried.",
            err=True,
        )


def _refusal_of(gid: str, text: str, *, one_of_many: bool) -> str:
    """Return a refusal with its message, also in the command that the remedy names."""
    named = text.replace("twophase explain GID", f"twophase explain {argument(gid)}")
    return f"{gid}: {named}" if one_of_many else named


def count_of(gids: list[str], kind: str) -> str:
    """Return the number of messages, in words.

    >>> count_of(["g"], "parked")
    '1 parked message'
    """
    return f"{len(gids)} {kind} message{'' if len(gids) == 1 else 's'}"


def state_in_words(state: str) -> str:
    """Return a state as people name it; dtm's wire spells one of them otherwise.

    >>> state_in_words("succeed"), state_in_words("prepared")
    ('succeeded', 'prepared')
    """
    return "succeeded" if state == "succeed" else state


def confirm(question: str) -> None:
    """Ask for a confirmation; the process ends when the answer is no."""
    if not confirmed(question):
        echo("Nothing is changed.", err=True)
        raise typer.Exit(EXIT_REFUSED)


def me() -> str:
    """Return this user at this machine: the default operator on record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
