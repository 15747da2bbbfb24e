"""`twophase letters …`: dead letters of groups, shown and sent again."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase.cli.operating.acting import ByOption, YesOption, confirm, me
from twophase.cli.operating.explanation import span
from twophase.cli.operating.groups import GroupArgument
from twophase.cli.operating.http_api import (
    DEFAULT_SERVER,
    EXIT_REFUSED,
    PAGE_ROWS,
    Api,
    JsonOption,
    ServerOption,
    path_of,
    print_json,
)
from twophase.cli.operating.plain_table import print_table
from twophase.cli.operating.queues import DryRunOption, WhyOption
from twophase.core.queue_operating import (
    ManyLetters,
    OneGroup,
    RedriveLetters,
    RedrivenLetter,
    RedrivenLetters,
    ShownLetter,
)

app = typer.Typer(
    name="letters",
    help="Dead letters: messages that a group was given too often, or has given up. Show them, and redrive them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_AT_ONCE_MAX: Final = 100
_SHOWN_MAX: Final = 60

_LIST_EXAMPLES: Final = """\b
Examples:
  twophase letters list billing
  twophase letters list billing --payload
  twophase letters list billing --json | jq '[.letters[] | select(.redriven | not) | .number]'"""


@app.command("list", epilog=_LIST_EXAMPLES)
def list_letters(
    group: GroupArgument,
    server: ServerOption = DEFAULT_SERVER,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Letters at most.")] = 100,
    position: Annotated[int, typer.Option("--from", min=0, help="Begin with the letter of this number.")] = 0,
    *,
    payload: Annotated[bool, typer.Option("--payload", help="With the bodies.")] = False,
    json: JsonOption = False,
) -> None:
    """List the dead letters of a group, the oldest first."""
    api = Api(server)
    found = _letters(api, group, position, limit, payload=payload)
    if not found.letters:
        api.get(path_of("groups", group), OneGroup)  # ends the command if there is no such group
    if json:
        print_json(found)
        return
    if not found.letters:
        echo(f"The group {group} has no dead letters{f' from number {position} on' if position else ''}.")
        return
    rows = [("NUMBER", "TOPIC", "MESSAGE", "AGE", "BYTES", "TAG", "PROPERTIES", "REDRIVEN")]
    print_table([*rows, *(_row(letter, found.now_ms) for letter in found.letters)])
    if payload:
        for letter in found.letters:
            echo(f"{letter.number}: {letter.body or letter.body_base64}")
    if found.position:
        echo(f"There are more: --from {found.position}")


def _letters(api: Api, group: str, position: int, limit: int, *, payload: bool) -> ManyLetters:
    letters: list[ShownLetter] = []
    while True:
        rows = str(min(limit - len(letters), int(PAGE_ROWS)))
        query = {"position": str(position), "limit": rows} | ({"payload": "true"} if payload else {})
        page = api.get(path_of("letters", group), ManyLetters, query=query)
        letters += page.letters
        position = page.position
        if not position or len(letters) >= limit:
            return ManyLetters(group, letters, position, page.now_ms)


def _row(letter: ShownLetter, now_ms: int) -> tuple[str, ...]:
    properties = ", ".join(f"{name}={value}" for name, value in letter.properties.items())
    shown = properties if len(properties) <= _SHOWN_MAX else f"{properties[: _SHOWN_MAX - 1]}…"
    return (
        str(letter.number),
        letter.topic or "-",
        letter.message_id,
        span(now_ms - letter.stored_ms),
        str(letter.body_bytes),
        letter.tag or "-",
        shown or "-",
        "yes" if letter.redriven else "no",
    )


_REDRIVE_EXAMPLES: Final = """\b
Examples:
  twophase letters redrive billing 3 4 --reason "the bank is back"
  twophase letters redrive billing --all --dry-run
  twophase letters redrive billing 3 --body-file fixed.json --set currency=EUR
  twophase letters redrive billing 3 --tag paid --unset debug --topic orders-2

Each letter goes to the topic from which it comes, and to this group alone, as a new message with the same message id.
Repeating it sends nothing twice. What was edited is recorded in the audit log, without the bodies. The letter stays
until cleaning removes it; a message that fails again becomes another letter."""


@app.command(epilog=_REDRIVE_EXAMPLES)
def redrive(
    group: GroupArgument,
    numbers: Annotated[list[int] | None, typer.Argument(metavar="[NUMBER]...", help="The letters' numbers.")] = None,
    topic: Annotated[str, typer.Option("--topic", help="Send them there instead.")] = "",
    body: Annotated[str | None, typer.Option("--body", help="Another body, of one letter.")] = None,
    body_file: Annotated[
        Path | None, typer.Option("--body-file", metavar="FILE", help="The same, from a file; - is standard input.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Another tag.")] = None,
    set_properties: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Add or replace a property; repeatable.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Remove a property; repeatable.")
    ] = None,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every letter that was not redriven yet.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Send dead letters to their group again, as they are or edited."""
    if bool(numbers) == everything:
        echo("Name letters, or use --all: one of the two.", err=True)
        raise typer.Exit(2)
    api = Api(server)
    chosen = numbers or [
        one.number for one in _letters(api, group, 0, sys.maxsize, payload=False).letters if not one.redriven
    ]
    if not chosen:
        api.get(path_of("groups", group), OneGroup)  # ends the command if there is no such group
        if json:
            print_json(RedrivenLetters(group, []))
        else:
            echo(f"The group {group} has no dead letter that was not redriven.")
        return
    if everything and not yes and not dry_run:
        confirm(f"Redrive {len(chosen)} dead letters of {group}?")
    edited = RedriveLetters(
        by or me(),
        reason,
        topic=topic,
        tag=tag,
        set_properties=_properties(set_properties or []),
        remove_properties=unset or [],
        dry_run=dry_run,
    )
    edited.body, edited.body_base64 = _body(body, body_file)
    letters: list[RedrivenLetter] = []
    for start in range(0, len(chosen), _AT_ONCE_MAX):
        edited.numbers = chosen[start : start + _AT_ONCE_MAX]
        letters += api.post(path_of("letters", group, "redrive"), edited, RedrivenLetters).letters
    if json:
        print_json(RedrivenLetters(group, letters))
    else:
        rows = [(str(one.number), one.topic or "-", one.gid or "-", one.result, one.why) for one in letters]
        print_table([("NUMBER", "TOPIC", "GID", "RESULT", "WHY"), *rows])
    if any(one.result == "refused" for one in letters):
        raise typer.Exit(EXIT_REFUSED)


def _properties(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if wrong := next((one for one in pairs if not one[0] or not one[1]), None):
        echo(f"--set: {''.join(wrong)!r} is not NAME=VALUE.", err=True)
        raise typer.Exit(2)
    return {name: value for name, _, value in pairs}


def _body(text: str | None, file: Path | None) -> tuple[str | None, str | None]:
    """Return the new body as text, or in base64; both None for none.

    Two bodies, or a file that cannot be read, end the process.
    """
    if file is None:
        return text, None
    if text is not None:
        echo("Use --body or --body-file, not both.", err=True)
        raise typer.Exit(2)
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        echo(f"--body-file: {file} cannot be read: {error.strerror}.", err=True)
        raise typer.Exit(2) from error
    return None, b64encode(raw).decode()
