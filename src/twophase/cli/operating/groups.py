"""`twophase groups …`: groups of consumers, their lag, and their positions."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase.cli.operating.acting import ByOption, YesOption, confirm, me
from twophase.cli.operating.explanation import span
from twophase.cli.operating.http_api import DEFAULT_SERVER, Api, JsonOption, ServerOption, path_of, print_json
from twophase.cli.operating.message_filters import TIME_HELP, milliseconds_in
from twophase.cli.operating.plain_table import print_table
from twophase.cli.operating.queues import DryRunOption, WhyOption, define, lag_rows
from twophase.core.queue_operating import (
    DefineGroup,
    ManyGroups,
    OneGroup,
    Removed,
    RemoveRequest,
    Reset,
    ResetRequest,
    ShownGroup,
)
from twophase.core.shell import argument

app = typer.Typer(
    name="groups",
    help="Groups of consumers: what they have not done, their settings, and their positions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

GroupArgument = Annotated[str, typer.Argument(help="The group's name; with a namespace, namespace/group.")]

_LIST_EXAMPLES: Final = """\b
Examples:
  twophase groups list
  twophase groups list --json | jq '.groups[] | select([.lags[].lag] | add > 1000) | .name'"""


@app.command("list", epilog=_LIST_EXAMPLES)
def list_groups(server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """List groups of consumers, with what they have not done."""
    pages = list(Api(server).pages(path_of("groups"), ManyGroups))
    groups, now_ms = [group for page in pages for group in page.groups], pages[-1].now_ms
    if json:
        print_json(ManyGroups(groups, "", now_ms))
        return
    if not groups:
        echo("There are no groups. The first consumer creates one, and so does: twophase groups create NAME")
        return
    rows: list[tuple[str, ...]] = [
        ("GROUP", "TOPICS", "NOT DONE", "OLDEST", "IN FLIGHT", "BEHIND", "DEAD LETTERS", "ASKED")
    ]
    rows += [_row(group, now_ms) for group in groups]
    print_table(rows)


def _row(group: ShownGroup, now_ms: int) -> tuple[str, ...]:
    oldest = [lag.oldest_ms for lag in group.lags if lag.oldest_ms]
    asked_ms = max((lag.asked_ms for lag in group.lags), default=0)
    return (
        group.name,
        str(len({lag.topic for lag in group.lags})),
        str(sum(lag.lag for lag in group.lags)),
        span(now_ms - min(oldest)) if oldest else "-",
        str(sum(lag.in_flight for lag in group.lags)),
        str(sum(lag.behind for lag in group.lags)),
        str(group.letters),
        f"{span(now_ms - asked_ms)} ago" if asked_ms else "never",
    )


_SHOW_EXAMPLES: Final = """\b
Examples:
  twophase groups show billing
  twophase groups show shop/billing --json"""


@app.command(epilog=_SHOW_EXAMPLES)
def show(name: GroupArgument, server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """Show a group: its settings, and its position in each queue.

    BEHIND are messages that wait behind others of their message group, and ASKED is when a consumer has asked this
    server last.
    """
    found = Api(server).get(path_of("groups", name), OneGroup)
    if json:
        print_json(found)
        return
    group = found.group
    pauses = ", ".join(f"{pause / 1000:g}" for pause in group.backoff_ms)
    limit = f"after {group.attempts_max} deliveries" if group.attempts_max else "never"
    echo(f"{group.name}: a message is a dead letter {limit}; pauses between deliveries: {pauses} s.")
    echo(f"Dead letters: {group.letters}. See: twophase letters list {argument(group.name)}")
    if group.lags:
        print_table(lag_rows(group.lags, found.now_ms))
    else:
        echo("It has read no topic.")


_CREATE_EXAMPLES: Final = """\b
Examples:
  twophase groups create billing
  twophase groups create billing --deliveries 5 --pauses 1,10,60"""
_CHANGE_EXAMPLES: Final = """\b
Examples:
  twophase groups change billing --deliveries 0
  twophase groups change billing --pauses 5,30,300 --reason "the bank is slow"

Consumers learn the pauses when they connect, or within some minutes."""
DeliveriesOption = Annotated[
    int | None, typer.Option("--deliveries", help="Deliveries of a message before it is a dead letter; 0: no limit.")
]
PausesOption = Annotated[
    str | None,
    typer.Option("--pauses", metavar="SECONDS", help="Pauses between deliveries, as 1,10,60; the last one repeats."),
]


@app.command(epilog=_CREATE_EXAMPLES)
def create(
    name: GroupArgument,
    deliveries: DeliveriesOption = None,
    pauses: PausesOption = None,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Make a group before its first use."""
    asked = DefineGroup(by or me(), reason, deliveries, _pauses(pauses), dry_run)
    define(server, path_of("groups", name, "define"), asked, json=json)


@app.command(epilog=_CHANGE_EXAMPLES)
def change(
    name: GroupArgument,
    deliveries: DeliveriesOption = None,
    pauses: PausesOption = None,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Change the settings of a group; those that are left out stay."""
    Api(server).get(path_of("groups", name), OneGroup)  # a misspelt name makes no group
    asked = DefineGroup(by or me(), reason, deliveries, _pauses(pauses), dry_run)
    define(server, path_of("groups", name, "define"), asked, json=json)


def _pauses(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [round(float(part) * 1000) for part in text.split(",")]
    except (ValueError, OverflowError):
        echo(f"--pauses: {text!r} is not a list of seconds, such as 1,10,60.", err=True)
        raise typer.Exit(2) from None


_REMOVE_EXAMPLES: Final = """\b
Examples:
  twophase groups remove billing --dry-run
  twophase groups remove billing --reason "the service is gone"
  twophase groups remove billing --override --yes

Its consumers must have stopped for a minute. With --override it is removed although it has not done all its messages:
these are then no longer kept for it. Its dead letters stay. A group that comes back begins with the oldest message."""


@app.command(epilog=_REMOVE_EXAMPLES)
def remove(
    name: GroupArgument,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    override: Annotated[bool, typer.Option("--override", help="Although it has not done all its messages.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Remove a group, for which messages are kept no longer."""
    api, path = Api(server), path_of("groups", name, "remove")
    would = api.post(path, RemoveRequest(by or me(), reason, override, True), Removed)
    if not dry_run:
        if not yes:
            confirm(f"Remove the group {would.name}, which has {would.undone} messages to do?")
        would = api.post(path, RemoveRequest(by or me(), reason, override), Removed)
    if json:
        print_json(would)
        return
    what = "would be removed" if dry_run else "removed"
    echo(f"{would.name}: {what}, with {would.undone} messages not done, and its positions in {would.positions} queues")


_RESET_EXAMPLES: Final = """\b
Examples:
  twophase groups reset billing orders --to earliest --dry-run
  twophase groups reset billing orders --to 2h --reason "the bug of this morning"
  twophase groups reset billing orders --to 2026-01-31T12:00
  twophase groups reset billing orders --to latest --queue 3 --yes

Done messages after the new position are given out again; messages before it are skipped. What
consumers have at this moment is given out again, too, if it comes after the position."""


@app.command(epilog=_RESET_EXAMPLES)
def reset(
    name: GroupArgument,
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    to: Annotated[str, typer.Option("--to", metavar="WHEN", help=f"earliest, latest, or a time. {TIME_HELP}")],
    queue: Annotated[int | None, typer.Option("--queue", help="Only this queue of the topic.")] = None,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Give a group another position in a topic: earliest, latest, or by time."""
    is_end = to in {"earliest", "latest"}
    at_ms = 0 if is_end else int(milliseconds_in("--to", to) or "0")

    def asked(*, dry: bool) -> ResetRequest:
        return ResetRequest(by or me(), reason, topic, to if is_end else "time", at_ms, queue, dry)

    api, path = Api(server), path_of("groups", name, "reset")
    found = api.post(path, asked(dry=True), Reset)
    repeated, skipped = sum(one.repeated for one in found.queues), sum(one.skipped for one in found.queues)
    if not dry_run:
        if not yes:
            confirm(f"Reset {found.group} in {found.topic}: {repeated} messages again, {skipped} skipped?")
        found = api.post(path, asked(dry=False), Reset)
    if json:
        print_json(found)
        return
    rows = [("QUEUE", "FROM", "TO", "AGAIN", "SKIPPED")]
    rows += [
        (str(one.queue), str(one.before), str(one.after), str(one.repeated), str(one.skipped)) for one in found.queues
    ]
    print_table(rows)
    if dry_run:
        echo("A dry run, nothing is changed.")
